"""RFC 6962's tree: the reference vectors of Certificate Transparency, and every proof of every size up to 64."""

import hashlib

import pytest

from artifacts.ledgers import merkle

# The eight leaves of certificate-transparency's reference tests, and the root after each. All digests here are among
# the constants of transparency-dev/merkle (417fb0c3), and its 98 inclusion and 98 consistency vectors come out as they
# say, but for one: there nothing goes on from an empty tree. pymerkle 7.0 gives the same roots and inclusion proofs,
# for these and for trees of up to 138 leaves.
LEAVES = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
# (leaf, size, proof) and (size, new size, proof) of the same tests; leaves count from 0 here.
INCLUSION = [
    (0, 8, [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ]),
    (5, 8, [
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ]),
    (2, 3, ["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"]),
    (1, 5, [
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ]),
]  # fmt: skip
CONSISTENCY = [
    (1, 1, []),
    (1, 8, [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ]),
    (6, 8, [
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ]),
    (2, 5, [
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ]),
]  # fmt: skip
MOST = 64
HASHES = [merkle.leaf_hash(number.to_bytes(2, "big")) for number in range(MOST)]
OTHER = bytes(32)


@pytest.fixture(scope="module")
def roots():
    return [merkle.root(HASHES[:size]) for size in range(MOST + 1)]


@pytest.fixture(scope="module")
def reference():
    return [merkle.leaf_hash(bytes.fromhex(text)) for text in LEAVES]


def hexed(proof):
    return [node.hex() for node in proof]


def changed(proof):
    """Every way in which a proof can be another one: a node flipped, left out, doubled, moved, and one more."""
    for number, node in enumerate(proof):
        yield [*proof[:number], bytes([node[0] ^ 1]) + node[1:], *proof[number + 1 :]]
        yield [*proof[:number], *proof[number + 1 :]]
        yield [*proof[:number], node, *proof[number:]]
        if number and proof[number - 1] != node:
            yield [*proof[: number - 1], node, proof[number - 1], *proof[number + 1 :]]
    yield [*proof, OTHER]
    yield [OTHER, *proof]


def test_the_published_roots(reference):
    assert merkle.root([]).hex() == hashlib.sha256(b"").hexdigest()
    assert [merkle.root(reference[:size]).hex() for size in range(1, 9)] == ROOTS


def test_the_published_proofs(reference):
    for index, size, proof in INCLUSION:
        assert hexed(merkle.inclusion(reference[:size], index)) == proof
        assert merkle.includes(
            reference[index], index, size, list(map(bytes.fromhex, proof)), bytes.fromhex(ROOTS[size - 1])
        )
    for size, new, proof in CONSISTENCY:
        assert hexed(merkle.consistency(reference[:new], size)) == proof
        both = bytes.fromhex(ROOTS[size - 1]), bytes.fromhex(ROOTS[new - 1])
        assert merkle.goes_on(size, both[0], new, both[1], list(map(bytes.fromhex, proof)))


def test_two_edges_of_the_published_vectors():
    """Found by holding them against ours: no leaves have one root, and nothing is no leaf."""
    assert not merkle.goes_on(0, merkle.EMPTY, 0, OTHER, [])
    assert merkle.goes_on(0, merkle.EMPTY, 0, merkle.EMPTY, [])
    assert not merkle.includes(b"", 0, 1, [], b"")


def test_every_leaf_of_every_tree_is_shown_to_be_in_it_and_at_no_other_place(roots):
    for size in range(1, MOST + 1):
        for index in range(size):
            proof = merkle.inclusion(HASHES[:size], index)
            assert len(proof) <= (size - 1).bit_length()
            assert merkle.includes(HASHES[index], index, size, proof, roots[size])
            for other in {index - 1, index + 1, size - 1 - index, -1, size} - {index}:
                assert not merkle.includes(HASHES[index], other, size, proof, roots[size])
            assert not merkle.includes(OTHER, index, size, proof, roots[size])
            assert not merkle.includes(HASHES[index], index, size, proof, roots[size - 1])
            assert not any(merkle.includes(HASHES[index], index, size, wrong, roots[size]) for wrong in changed(proof))


def test_every_tree_goes_on_from_every_smaller_one_and_from_no_other(roots):
    for new in range(1, MOST + 1):
        for size in range(new + 1):
            proof = merkle.consistency(HASHES[:new], size)
            assert merkle.goes_on(size, roots[size], new, roots[new], proof)
            assert not merkle.goes_on(size, OTHER, new, roots[new], proof)
            assert size == 0 or not merkle.goes_on(size, roots[size], new, OTHER, proof)
            assert not merkle.goes_on(new + 1, roots[size], new, roots[new], proof)
            if 0 < size < new:
                assert not merkle.goes_on(size - 1, roots[size], new, roots[new], proof)
            assert not any(merkle.goes_on(size, roots[size], new, roots[new], wrong) for wrong in changed(proof))


def test_a_history_of_which_one_leaf_is_another_does_not_go_on(roots):
    """What a server that shows two histories cannot prove, whichever leaf it exchanged."""
    for size in range(1, 17):
        for exchanged in range(size):
            other = [OTHER if number == exchanged else leaf for number, leaf in enumerate(HASHES[:20])]
            proof = merkle.consistency(other, size)
            assert merkle.goes_on(size, merkle.root(other[:size]), 20, merkle.root(other), proof)
            assert not merkle.goes_on(size, roots[size], 20, merkle.root(other), proof)
            assert not merkle.goes_on(size, roots[size], 20, merkle.root(other), merkle.consistency(HASHES[:20], size))
