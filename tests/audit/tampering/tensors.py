"""What an insider hides among tensors and in a header, with digests, seals and a ledger that fit."""

import numpy as np
from tampering.run import case


@case("tensors", "an extra tensor in a message")
def _(run):
    run.rewrite("message", {"patients": np.arange(9, dtype=np.float32)})


@case("tensors", "a tensor of a message made larger")
def _(run):
    name = min(run.tensors("message"))
    run.rewrite("message", {name: np.zeros(99, np.float32)})


@case("tensors", "an extra tensor in a state")
def _(run):
    run.rewrite("state", {"patients": np.arange(9, dtype=np.float32)})


@case("tensors", "an extra tensor in a masked update")
def _(run):
    run.rewrite("secagg-masked", {"patients": np.arange(9, dtype=np.int32)})


def _extra(kind):
    @case("tensors", f"an extra tensor in a {kind}")
    def extra(run):
        _, _, old = run.forge.take_apart(run.path(kind).read_bytes())

        def table(found):
            found["zz"] = {"dtype": "U8", "shape": [8], "data_offsets": [len(old), len(old) + 8]}

        run.forged(kind, table=table, payload=old + bytes(8))


for _kind in ("surrogate", "proxy", "secagg-keys", "secagg-shares", "secagg-survivors", "secagg-unmask"):
    _extra(_kind)


@case("tensors", "numbers hidden in the labels of a surrogate")
def _(run):
    labels = run.tensors("surrogate")["labels"].copy()
    labels[0] = 4711_1968_02_29
    run.rewrite("surrogate", {"labels": labels})


@case("tensors", "more images in a surrogate than its parameters say")
def _(run):
    found = run.tensors("surrogate")
    twice = {name: np.concatenate([found[name]] * 2) for name in ("images", "labels")}
    run.rewrite("surrogate", twice)


@case("tensors", "more images in a proxy than its parameters say")
def _(run):
    found = run.tensors("proxy")
    run.rewrite("proxy", {name: np.concatenate([found[name]] * 2) for name in ("images", "residuals")})


@case("digest", "bytes in a gap between two tensors")
def _(run):
    header, _, payload = run.forge.take_apart(run.path("message").read_bytes())
    ends = {name: entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"}
    start, last = min(ends.values()), max(ends, key=ends.get)

    def table(found):
        found[last]["data_offsets"] = [offset + 8 for offset in found[last]["data_offsets"]]

    run.forged("message", table=table, payload=payload[:start] + b"patient1" + payload[start:])


@case("digest", "bits in the spaces of a header")
def _(run):
    run.forged("message", mangle=lambda header: header.replace('},"', '}, "', 1))


@case("digest", "bits in the order of a header's tensors")
def _(run):
    def table(found):
        names = [name for name in found if name != "__metadata__"]
        moved = {name: found.pop(name) for name in names}
        for name in reversed(names):
            found[name] = moved[name]

    run.forged("message", table=table)
