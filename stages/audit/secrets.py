"""Keys and seeds where they must not be: looked for in every byte of a file that leaves, in the ways they are spelt."""

from __future__ import annotations

import base64
from collections.abc import Iterable

import numpy as np

from artifacts.identity.keys import Key
from artifacts.identity.roster import PURPOSES, signing_key

# What is derived from a key and kept; whatever is drawn for one computation is as many bytes as there are computations.
_LABELS = ("commitment", "commitment salt", "spend ledger")
_LEAST_SEED = 1 << 32  # smaller ones stand everywhere by chance
_WORD = np.dtype("<u8")  # whatever is twice as long holds a whole one, wherever it begins


class Watch:
    """Is shown a file piece by piece, and says what of the secrets stands in it."""

    def __init__(self, key: Key | None, seeds: Iterable[int] = ()) -> None:
        named = {"the secret key": key.secret} if key is not None else {}
        if key is not None:
            named |= {f"a key derived from the secret one ({label})": key.derive(label) for label in _LABELS}
            named |= {f"the signing key ({purpose})": signing_key(key, purpose) for purpose in PURPOSES}
        self._needles = [(text, what) for what, secret in named.items() for text in _spellings(secret)]
        # A secret in a file has at least one of its words at a multiple of eight bytes: a glance at two bytes of each
        # word leaves few to compare, where a search for each spelling would read the file fifty times.
        words = np.frombuffer(b"".join(text[i : i + 8] for text, _ in self._needles for i in range(8)), _WORD)
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

    def _search(self, data: bytes) -> None:
        if any(seed in data for seed in self._seeds):
            self._add("a seed")
        for text, what in self._needles if self._has_word(data) else ():
            if text in data:
                self._add(what)

    def _has_word(self, data: bytes) -> bool:
        words = np.frombuffer(data, _WORD, len(data) // 8)
        starts = words.view("<u2")[::4]
        return not self._words.isdisjoint(words[self._starts.take(starts).nonzero()].tolist())

    def _add(self, what: str) -> None:
        if what not in self.found:
            self.found.append(what)


def _spellings(secret: bytes) -> list[bytes]:
    """As it is, in hexadecimal digits, and in base64 wherever it begins in a longer text: the sure letters of that."""
    texts = [secret, secret.hex().encode(), secret.hex().upper().encode()]
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for shift in range(3):
            text = encode(bytes(shift) + secret).rstrip(b"=")
            start = -(-shift * 8 // 6)
            end = (shift + len(secret)) * 8 // 6
            texts.append(text[start:end])
    return list(dict.fromkeys(texts))
