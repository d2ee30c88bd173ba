"""Differential privacy: secret streams, clipping, noise, events, accountants. It knows no files and no stages."""
