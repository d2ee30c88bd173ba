"""Keys where they must not be."""

import base64
import zlib

import numpy as np
from tampering.images import png, pngs
from tampering.run import case


def _in_tensor(run, secret):
    found = run.tensors("message")
    name = max(found, key=lambda n: found[n].size)
    data = found[name].tobytes()
    hidden = data[:101] + secret + data[101 + len(secret) :]  # at an odd place
    run.rewrite("message", {name: np.frombuffer(hidden, np.float32).reshape(found[name].shape)})


_SPELLINGS = {
    "as it is": lambda secret: secret,
    "in hexadecimal digits": lambda secret: secret.hex().encode(),
    "in base64": lambda secret: base64.b64encode(b"x" + secret),
}
for _name, _spell in _SPELLINGS.items():

    @case("secrets", f"the client's key in a tensor, {_name}")
    def _(run, spell=_spell):
        _in_tensor(run, spell(run.key.secret))


@case("secrets", "a derived key in a tensor")
def _(run):
    _in_tensor(run, run.key.derive("commitment"))


@case("secrets", "the key in a picture of a dataset")
def _(run):
    stored = zlib.compress(run.key.secret + bytes(8 * 9 - 32), 0)  # not compressed
    run.rewrite_dataset(pngs=[png(8, 8, stored), *pngs(run)[1:]])


@case("secrets", "a key that others can read")
def _(run):
    (run.private / "client.key").chmod(0o644)
