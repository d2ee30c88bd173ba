"""The declarations of `evaluate`'s measurements: options, help and table of each, for the command line to read."""
