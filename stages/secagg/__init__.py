"""Secure aggregation over files: the server learns the sum of a round's updates, and of no single one anything.

Bonawitz et al., «Practical Secure Aggregation for Privacy-Preserving Machine Learning», CCS 2017: the protocol of their
figure 4, with signed keys and the consistency check. docs/secure-aggregation.md goes through it step by step.
`shamir`, `primitives`, `ring` and `masks` are the mathematics and know no files.
"""
