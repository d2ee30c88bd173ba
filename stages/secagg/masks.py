"""Masks: ChaCha20 streams that vanish from the sum. Vectors of any length, in pieces that stay in the cache.

y_u = x_u + PRG(b_u) + Σ_{v after u} PRG(s_uv) − Σ_{v before u} PRG(s_uv)   (modulo 2^modulus)

s_uv is agreed between u and v, so that each pair's stream is added once and taken away once. b_u is u's own: it keeps
x_u hidden even if the server learns all the s_uv, by having called u dropped before a late y_u came in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from stages.secagg.primitives import agreed, expanded

_PIECE = 1 << 18  # bytes of stream at a time
Words = NDArray[np.unsignedinteger]


def own_mask_key(seed: bytes, session: str, client: str) -> bytes:
    return expanded(seed, "own mask", {"session": session, "client": client})


def pair_mask_key(secret: bytes, public: bytes, session: str, pair: Iterable[str]) -> bytes:
    """The same at both ends: the pair is named in order."""
    return agreed(secret, public, "pair mask", {"session": session, "pair": sorted(pair)})


def add_stream(total: Words, key: bytes, *, take_away: bool = False) -> None:
    """Add the key's stream to the vector, or take it away, in place. One key is one stream, never two."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    size = total.dtype.itemsize
    zeros, buffer = memoryview(bytes(_PIECE)), bytearray(_PIECE)
    words = np.frombuffer(buffer, total.dtype)
    for start in range(0, total.size, _PIECE // size):
        part = total[start : start + _PIECE // size]
        stream.update_into(zeros[: part.size * size], buffer)
        if take_away:
            part -= words[: part.size]
        else:
            part += words[: part.size]


def add_pair_masks(
    total: Words, client: str, secret: bytes, publics: Mapping[str, bytes], session: str, *, take_away: bool = False
) -> None:
    """What `client` adds for its peers, by name; `take_away` undoes it."""
    for peer, public in publics.items():
        key = pair_mask_key(secret, public, session, (client, peer))
        add_stream(total, key, take_away=(peer < client) != take_away)


def masked(
    values: Words, *, client: str, seed: bytes, secret: bytes, publics: Mapping[str, bytes], session: str
) -> Words:
    """y_u, from x_u in steps. `publics` are the mask keys of all peers that sent shares, without the client's own."""
    total = values.copy()
    add_stream(total, own_mask_key(seed, session, client))
    add_pair_masks(total, client, secret, publics, session)
    return total


def uncover(
    total: Words,
    *,
    session: str,
    seeds: Mapping[str, bytes],
    dropped: Mapping[str, bytes],
    publics: Mapping[str, Mapping[str, bytes]],
) -> None:
    """Take the masks off the sum of the survivors' vectors, in place.

    `seeds` are the survivors' b, `dropped` the secret mask keys of those who shared but sent no vector, `publics` the
    public mask keys of the survivors that masked with each of these. A dropped client's streams are there from the
    survivors' side: adding its own cancels.
    """
    for client, seed in seeds.items():
        add_stream(total, own_mask_key(seed, session, client), take_away=True)
    for client, secret in dropped.items():
        add_pair_masks(total, client, secret, publics[client], session)


def flat(tensors: Mapping[str, NDArray[np.generic]], dtype: np.dtype[np.generic]) -> NDArray[np.generic]:
    """All tensors side by side, in the order of their names."""
    result = np.empty(sum(tensor.size for tensor in tensors.values()), dtype)
    position = 0
    for name in sorted(tensors):
        size = tensors[name].size
        result[position : position + size] = tensors[name].reshape(-1)
        position += size
    return result


def shaped(vector: NDArray[np.generic], shapes: Mapping[str, Sequence[int]]) -> dict[str, NDArray[np.generic]]:
    """The other way."""
    result, position = {}, 0
    for name in sorted(shapes):
        size = int(np.prod(shapes[name], dtype=np.int64))
        result[name] = vector[position : position + size].reshape(tuple(shapes[name]))
        position += size
    return result
