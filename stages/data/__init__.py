"""Where images come from, and how a simulation divides them among clients."""
