"""Updates of a model as files: what a client sends of its own, and the mean that the server makes of all."""
