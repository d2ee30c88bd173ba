"""Keys, commitments and signatures: who made a file, and what they state about it."""
