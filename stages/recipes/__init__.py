"""Whole pipelines as data, and the runner that loops over the stages."""
