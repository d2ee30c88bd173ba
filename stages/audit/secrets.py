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
_LEAST_SEED = 1 << 32  # smaller ones are everywhere by chance
_WORD = np.dtype("<u8")  # whatever is twice as long holds a whole one, wherever it begins
_PART = 15
_ALL, _SOME = "the secret key", "a part of the secret key"


class Watch:
    """Is shown a file piece by piece, and says what of the secrets is in it."""

    def __init__(self, key: Key | None, seeds: Iterable[int] = ()) -> None:
        named = {_ALL: key.secret} if key is not None else {}
        if key is not None:
            named |= {f"a key derived from the secret one ({label})": key.derive(label) for label in _LABELS}
            named |= {f"the signing key ({purpose})": signing_key(key, purpose) for purpose in PURPOSES}
        self._needles = [(text, what) for what, secret in named.items() for text in spellings(secret)]
        self._parts = _parts(key.secret) if key is not None else []
        # A secret in a file has at least one of its words at a multiple of eight bytes: a glance at two bytes of each
        # word leaves few to compare, where a search for each spelling would read the file fifty times.
        texts = [*(text for text, _ in self._needles), *self._parts]
        words = np.frombuffer(b"".join(text[i : i + 8] for text in texts for i in range(8)), _WORD)
        self._words = set(words.tolist())
        self._starts = np.zeros(1 << 16, np.bool_)
        self._starts[words & 0xFFFF] = True
        self._seeds: list[bytes] = []
        for seed in {seed for seed in seeds if seed >= _LEAST_SEED}:
            self._seeds += [seed.to_bytes(8, order) for order in ("little", "big") if seed < 1 << 64]
            self._seeds += [str(seed).encode(), f"{seed:x}".encode()]
        self._overlap = max(map(len, [*self._seeds, *(text for text, _ in self._needles)]), default=1) - 1
        self.begin()

    def begin(self) -> None:
        """The next file."""
        self.found: list[str] = []
        self._tail = b""

    def see(self, piece: bytes) -> None:
        """The next bytes of the file."""
        if self._tail:
            self._search(self._tail + piece[: self._overlap])
        self._search(piece)
        self._tail = (self._tail + piece[-self._overlap :])[-self._overlap :] if self._overlap else b""

    def see_text(self, text: bytes) -> None:
        """What a file says of itself, where it is spelt otherwise in the file."""
        self._search(text)

    def see_numbers(self, values: NDArray[Any]) -> None:
        """Numbers each of which could be a byte: as it is, or as a share of 255."""
        flat = values.reshape(-1) if self._parts else values[:0]
        # A share of 255 in half precision is off by an eighth, once it is multiplied out.
        near = max(1e-3, 128 * float(np.finfo(flat.dtype).eps)) if flat.dtype.kind == "f" else 1e-3
        wide = flat.astype(np.promote_types(flat.dtype, np.float32), copy=False)
        for scale in (1, 255):
            with np.errstate(over="ignore", invalid="ignore"):  # what overflows is no byte
                scaled = wide * wide.dtype.type(scale) if scale > 1 else wide
                few = scaled[np.abs(scaled - np.rint(scaled)) <= near]
            data = np.rint(few[(few >= 0) & (few <= 255)]).astype(np.uint8).tobytes()
            if len(data) >= _PART and self._has_word(data):
                self._search_parts(data)

    def _search(self, data: bytes) -> None:
        if any(seed in data for seed in self._seeds):
            self._add("a seed")
        if not self._has_word(data):
            return
        for text, what in self._needles:
            if text in data:
                self._add(what)
        self._search_parts(data)

    def _search_parts(self, data: bytes) -> None:
        if any(part in data for part in self._parts):
            self._add(_SOME)

    def _has_word(self, data: bytes) -> bool:
        words = np.frombuffer(data, _WORD, len(data) // 8)
        starts = words.view("<u2")[::4]
        return not self._words.isdisjoint(words[self._starts.take(starts).nonzero()].tolist())

    def _add(self, what: str) -> None:
        if what not in self.found:
            self.found.append(what)
        if _ALL in self.found and _SOME in self.found:
            self.found.remove(_SOME)


def _parts(secret: bytes) -> list[bytes]:
    """Any fifteen bytes in a row of the key, and of the key read backwards: the fewest that hold a whole word."""
    cut = [secret[start : start + _PART] for start in range(len(secret) - _PART + 1)]
    return [*cut, *(piece[::-1] for piece in cut)]


def spellings(secret: bytes) -> list[bytes]:
    """As it is, in hexadecimal digits, and in base64 wherever it begins in a longer text: the sure letters of that."""
    texts = [secret, secret.hex().encode(), secret.hex().upper().encode()]
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for shift in range(3):
            text = encode(bytes(shift) + secret).rstrip(b"=")
            start = -(-shift * 8 // 6)
            end = (shift + len(secret)) * 8 // 6
            texts.append(text[start:end])
    return list(dict.fromkeys(texts))
