"""Generators of `train-generator` and `synthesize` as files."""
