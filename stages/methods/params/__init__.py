"""Hyper-parameters of the methods, declared once and without torch, so that `--help` can read them."""
