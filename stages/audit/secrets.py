"""Keys and seeds where they must not be: looked for in every byte of a file that leaves, in the ways they are spelt."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.identity.keys import Key
from artifacts.identity.roster import PURPOSES, signing_key

# What is derived from a key and kept; whatever is drawn for one computation is as many bytes as there are computations.
_LABELS = ("commitment", "commitment salt", "spend ledger")
_LEAST_SEED = 1 << 32  # smaller ones stand everywhere by chance
_BLOCK = 16  # the shortest spelling holds a whole block of printable letters, wherever it begins
_FIRST_LETTER, _LETTERS = np.uint8(0x20), np.uint8(0x5F)


class Watch:
    """Is shown a file piece by piece, and says what of the secrets stands in it."""

    def __init__(self, key: Key | None, seeds: Iterable[int] = ()) -> None:
        named = {"the secret key": key.secret} if key is not None else {}
        if key is not None:
            named |= {f"a key derived from the secret one ({label})": key.derive(label) for label in _LABELS}
            named |= {f"the signing key ({purpose})": signing_key(key, purpose) for purpose in PURPOSES}
        self._raw = [(secret, what) for what, secret in named.items()]
        self._parts = [(part, "a part of the secret key") for part in _parts(key.secret)] if key is not None else []
        self._spelt = [(text, what) for what, secret in named.items() for text in _spellings(secret)]
        for seed in {seed for seed in seeds if seed >= _LEAST_SEED}:
            self._raw += [(seed.to_bytes(8, order), "a seed") for order in ("little", "big") if seed < 1 << 64]
            self._raw += [(str(seed).encode(), "a seed"), (f"{seed:x}".encode(), "a seed")]
        self._overlap = max((len(needle) for needle, _ in [*self._raw, *self._spelt]), default=1) - 1
        self.begin()

    def begin(self) -> None:
        """The next file."""
        self.found: list[str] = []
        self._tail = b""

    def see_text(self, text: bytes) -> None:
        """What a file says of itself."""
        self._search(text, self._raw)
        self._search(text, self._spelt)

    def see(self, piece: bytes) -> None:
        """The next bytes of what it holds."""
        if not self._raw:
            return
        pieces = [piece, self._tail + piece[: self._overlap]] if self._tail else [piece]
        for data in pieces:
            self._search(data, self._raw)
            self._search(data, self._parts)
            if _has_text(data):
                self._search(data, self._spelt)
        self._tail = (self._tail + piece[-self._overlap :])[-self._overlap :]

    def see_numbers(self, values: NDArray[Any]) -> None:
        """Numbers each of which could be a byte: as it is, or as a share of 255."""
        if not self._parts:
            return
        flat = values.reshape(-1)
        for scale in (1.0, 255.0):
            scaled = flat * np.asarray(scale, flat.dtype)
            whole = np.rint(scaled)
            bytes_ = whole[(np.abs(scaled - whole) < 1e-3) & (whole >= 0) & (whole <= 255)]
            if len(bytes_) >= _PART:
                self._search(bytes_.astype(np.uint8).tobytes(), self._parts)

    def _search(self, data: bytes, needles: list[tuple[bytes, str]]) -> None:
        for needle, what in needles:
            if needle in data:
                self._add(what)

    def _add(self, what: str) -> None:
        if what not in self.found:
            self.found.append(what)


_PART = 8


def _parts(secret: bytes) -> list[bytes]:
    """Pieces of the key and of the key read backwards: whoever spreads it over files, 15 bytes at a time, shows one.

    A piece of eight bytes stands in a gigabyte of other data with a chance of 5·10⁻¹⁰.
    """
    cut = [secret[start : start + _PART] for start in range(0, len(secret), _PART)]
    return [*cut, *(piece[::-1] for piece in cut)]


def _spellings(secret: bytes) -> list[bytes]:
    """As hexadecimal digits, and in base64 wherever it begins in a longer text: of three letters, the sure ones."""
    texts = [secret.hex().encode(), secret.hex().upper().encode()]
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for shift in range(3):
            text = encode(bytes(shift) + secret).rstrip(b"=")
            start = -(-shift * 8 // 6)
            end = (shift + len(secret)) * 8 // 6
            texts.append(text[start:end])
    return list(dict.fromkeys(texts))


_ONES = np.uint64(0x0101010101010101)


def _has_text(data: bytes) -> bool:
    """Whether a run of printable letters stands in it that is long enough for a spelling. Numbers have none."""
    values = np.frombuffer(data, np.uint8, len(data) // _BLOCK * _BLOCK)
    words = ((values - _FIRST_LETTER) < _LETTERS).view(np.uint64) == _ONES
    return bool((words[::2] & words[1::2]).any())
