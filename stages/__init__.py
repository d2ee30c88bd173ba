"""What the toolkit does: one file a subcommand, the maths in `methods`, the networks in `nets`."""
