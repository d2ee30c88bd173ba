"""Small runs of a recipe that try whether its ε is kept: on neighbouring data, and with canaries."""
