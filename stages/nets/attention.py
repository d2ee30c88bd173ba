"""Attention by torch's plain formula, wherever it is differentiated twice or example by example.

The fused kernels that torch prefers have no second derivative, and `vmap` runs them one example after the other.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from torch.nn.attention import SDPBackend, sdpa_kernel


def plain_attention() -> AbstractContextManager[None]:
    return sdpa_kernel(SDPBackend.MATH)
