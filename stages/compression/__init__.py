"""Updates in fewer bytes by plain means, written and read."""
