"""Secret streams: the randomness that a differentially private step draws from (privacy contract, rules 7 to 9).

The idea is RFC 6979's. Who holds the client's key can draw the same noise again and replay a stage byte for byte;
to everyone else the noise is unpredictable; and because the context digests whatever determines the output, a different
output never meets the same noise, from whose reuse the data could be computed.

    stream key = HKDF-SHA256(client key, info = "fedsynth/1 stream " ‖ label ‖ 0 ‖ SHA-256(canonical JSON of context))
    bytes of step t = ChaCha20(stream key, nonce = t + 1), nonce 0 being the stream without a step

Guarantee: computational. If HKDF-SHA256 and ChaCha20 are pseudo-random, no one without the key tells the draws from
independent ones. Anyone who has the key can remove the noise.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

Label = Literal["noise", "sampling", "examples"]
Shape = int | tuple[int, ...]

KEY_SIZE = 32
# Rule 8: whatever could change the output must change the noise. All of these, or no stream.
CONTEXT = frozenset(
    {"inputs", "params", "seed", "stage", "client", "round", "versions", "device", "arithmetic"}
)  # fmt: skip
_WHERE_KNOWN = frozenset({"federation"})  # before there is a roster nobody knows it
_MAX_STEP = 2**64 - 2
_WORD = 2.0**-64
_CHUNK = 1 << 18  # draws at a time: the temporaries stay in the cache


def context_digest(context: Mapping[str, Any]) -> bytes:
    """SHA-256 of the context as canonical JSON. A context that lacks a field, or has an unknown one, is refused."""
    missing, unknown = sorted(CONTEXT - context.keys()), sorted(context.keys() - CONTEXT - _WHERE_KNOWN)
    if missing or unknown:
        wrong = f"lacks {missing[0]!r}" if missing else f"has the unknown field {unknown[0]!r}"
        raise ValueError(f"the context of a secret stream {wrong}; it holds exactly {', '.join(sorted(CONTEXT))}")
    text = json.dumps(context, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).digest()


def derived_key(key: bytes, purpose: str, context: Mapping[str, Any]) -> bytes:
    """A key of its own for each purpose and context: HKDF-SHA256."""
    return key_for_digest(key, purpose, context_digest(context))


def key_for_digest(key: bytes, purpose: str, digest: bytes) -> bytes:
    """The same where only the digest of the context is known."""
    # cryptography is imported where a key is used: `--help` never needs it.
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    if len(key) != KEY_SIZE:
        raise ValueError(f"a key must hold {KEY_SIZE} bytes, found {len(key)}")
    info = f"fedsynth/1 {purpose}".encode() + b"\0" + digest
    return HKDF(algorithm=SHA256(), length=KEY_SIZE, salt=None, info=info).derive(key)


class SecretStream:
    """One stream of draws. What was drawn is gone; `at(step)` gives each step its own, wherever training resumes."""

    def __init__(self, key: bytes, context: Mapping[str, Any], label: Label) -> None:
        if label not in get_args(Label):
            raise ValueError(f"a stream's label must be one of {', '.join(get_args(Label))}; found {label!r}")
        self._open(derived_key(key, f"stream {label}", context), nonce=0)

    def at(self, step: int) -> SecretStream:
        """The stream of one step, from its beginning. It depends on no draw that was made before."""
        if self._nonce:
            raise ValueError("a step's stream has no steps of its own")
        if not 0 <= step <= _MAX_STEP:
            raise ValueError(f"a step must be a number from 0 to {_MAX_STEP}, found {step}")
        other = SecretStream.__new__(SecretStream)
        other._open(self._key, nonce=step + 1)
        return other

    def __repr__(self) -> str:
        return "SecretStream(…)"

    def _open(self, key: bytes, nonce: int) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher
        from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

        self._key, self._nonce = key, nonce
        # RFC 8439: a 32-bit block counter, here from 0, then a 96-bit nonce. A step can draw 256 GB.
        start = bytes(4) + nonce.to_bytes(12, "little")
        self._cipher = Cipher(ChaCha20(key, start), mode=None).encryptor()

    def uniform_bits(self, count: int) -> NDArray[np.uint64]:
        """`count` words of 64 uniform bits."""
        return np.frombuffer(self._cipher.update(bytes(8 * count)), dtype="<u8").astype(np.uint64, copy=False)

    def uniform(self, shape: Shape) -> NDArray[np.float64]:
        """Uniform on the multiples of 2⁻⁵³ in [0, 1)."""
        words = self.uniform_bits(_size(shape))
        return ((words >> np.uint64(11)).astype(np.float64) * 2.0**-53).reshape(shape)

    def bernoulli(self, probability: float, count: int) -> NDArray[np.bool_]:
        """`count` independent draws, each true with `probability`: the mask of a Poisson sample.

        A word below ⌊q·2⁶⁴⌋ is a yes. That is exactly q wherever q is a multiple of 2⁻⁶⁴, as every float64 from 2⁻¹¹
        up is; a smaller q is rounded down, by less than 2⁻⁶⁴, towards privacy. A uniform float would round q up.
        """
        if not 0 <= probability <= 1:
            raise ValueError(f"a probability must lie from 0 to 1, found {probability!r}")
        numerator, denominator = float(probability).as_integer_ratio()
        threshold = (numerator << 64) // denominator
        words = self.uniform_bits(count)  # drawn even for 0 and 1, so that what follows stays in its place
        return np.ones(count, bool) if threshold >> 64 else words < np.uint64(threshold)

    def randint(self, below: int, size: Shape) -> NDArray[np.int64]:
        """Uniform whole numbers from 0 to `below` − 1, without bias: words of the last, cut-off cycle are redrawn."""
        if not 1 <= below <= 2**63:
            raise ValueError(f"the bound must be a number from 1 to 2⁶³, found {below}")
        count = _size(size)
        last = np.uint64(2**64 - 2**64 % below - 1)
        words = self.uniform_bits(count)
        while (bad := np.flatnonzero(words > last)).size:
            words = words.copy()
            words[bad] = self.uniform_bits(bad.size)
        return (words % np.uint64(below)).astype(np.int64).reshape(size)

    def gaussian(self, shape: Shape, scale: float) -> NDArray[np.float64]:
        """Independent draws of N(0, scale²), each from one word, by the inverse of the distribution function.

        One bit is the sign s, 63 bits the number k: s·Φ⁻¹((k + ½)/2⁶⁴), in the lower half, where float64 is fine in
        the tail. A method without rejection: draw i needs word i, and equal words give equal draws as far as the
        machines' `log` and `sqrt` agree. Truncation: no draw lies beyond 9.2·scale, where N(0, scale²) has a mass of
        2⁻⁶⁴. These are float64 numbers: never add them to a private value and release the sum. `mechanism.noisy_mean`
        adds whole numbers and rounds to a public grid (rule 10).
        """
        from scipy.special import ndtri

        if not (math.isfinite(scale) and scale >= 0):
            raise ValueError(f"the scale must be a number of at least 0, found {scale!r}")
        count = _size(shape)
        result = np.empty(count)
        for start in range(0, count, _CHUNK):
            part = result[start : start + _CHUNK]
            words = self.uniform_bits(part.size)
            np.add((words >> np.uint64(1)).view(np.int64), 0.5, out=part)
            part *= _WORD
            ndtri(part, out=part)  # at most 0
            np.negative(part, out=part, where=(words & np.uint64(1)).astype(bool))
            part *= scale
        return result.reshape(shape)

    def torch_seed(self) -> int:
        """63 bits to seed a generator with, for randomness that the whole batch shares (rule 7)."""
        return int(self.uniform_bits(1)[0] >> np.uint64(1))


def _size(shape: Shape) -> int:
    return shape if isinstance(shape, int) else math.prod(shape)
