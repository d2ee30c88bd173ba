"""One real step of every method on every kind of network, through the stages; and the table of it in the docs.

python tests/plugins/method_table.py        # write docs/networks.md anew
"""

import functools
import re
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/networks.md"
OWN = Path(__file__).with_name("kinds_of_networks.py")
BEGIN, END = "<!-- written by tests/plugins/method_table.py -->", "<!-- end -->"

_VIT = "trunk.class_token,trunk.conv_proj.*,*.pos_embedding,*.encoder_layer_?.*,*.encoder_layer_10.*"
# As a row of the table has it: options of `init-model`, and the side of the images.
NETWORKS = {
    "`softmax`": ({"arch": "softmax"}, 16),
    "`mlp`": ({"arch": "mlp", "width": 8}, 16),
    "`convnet`": ({"arch": "convnet", "width": 8, "depth": 2}, 16),
    "`emnist-cnn`": ({"arch": "emnist-cnn"}, 16),
    "`strided`": ({"arch": "strided"}, 16),
    "`lenet5`": ({"arch": "lenet5"}, 32),
    "`vgg11`": ({"arch": "vgg11"}, 32),
    "`resnet18`": ({"arch": "resnet18"}, 16),
    "`torchvision:resnet18`": ({"arch": "torchvision:resnet18"}, 16),
    "`torchvision:resnet18 --norm group`": ({"arch": "torchvision:resnet18", "norm": "group"}, 16),
    "`torchvision:resnet50 --norm group`": ({"arch": "torchvision:resnet50", "norm": "group"}, 16),
    "`torchvision:mobilenet_v3_small --norm group`": ({"arch": "torchvision:mobilenet_v3_small", "norm": "group"}, 16),
    "`torchvision:efficientnet_b0 --norm group`": ({"arch": "torchvision:efficientnet_b0", "norm": "group"}, 16),
    "`torchvision:resnet18 --freeze 'trunk.*'`": ({"arch": "torchvision:resnet18", "freeze": "trunk.*"}, 16),
    "`torchvision:vit_b_16`, the last block trained": ({"arch": "torchvision:vit_b_16", "freeze": _VIT}, 16),
    "own: tied weights": ({"arch": "own-tied"}, 16),
    "own: dropout": ({"arch": "own-dropout"}, 16),
    "own: no bias": ({"arch": "own-no-bias"}, 16),
    "own: `Net(trunk, classifier)`": ({"arch": "own-two-parts"}, 16),
    "own: batch norm": ({"arch": "own-batch-norm"}, 16),
    "own: layer norm": ({"arch": "own-layer-norm"}, 16),
    "own: embedding of places": ({"arch": "own-position-embedding"}, 16),
    "own: embedding of pixels": ({"arch": "own-pixel-embedding"}, 16),
    "own: attention": ({"arch": "own-attention"}, 16),
    "own: LSTM": ({"arch": "own-lstm"}, 16),
    "own: GRU": ({"arch": "own-gru"}, 16),
    "own: depthwise convolution": ({"arch": "own-depthwise"}, 16),
    "own: convolution in 1-D": ({"arch": "own-convolution-1d"}, 16),
    "own: convolution in 3-D": ({"arch": "own-convolution-3d"}, 16),
    "own: `F.hardsigmoid`": ({"arch": "own-fused"}, 16),
    "own: a branch by pixel values": ({"arch": "own-branching"}, 16),
}  # fmt: skip
SMALL = ("own: embedding of pixels", "own: LSTM")

LARGE = 20e6  # bytes of a model, which two algorithms of the family are tried on
_NOISE = {"noise_multiplier": 1.0, "clip_norm": 1.0, "sampling_rate": 0.05}


@functools.cache
def place_in(folder, side):
    return Place(folder, side)


class Place:
    """A divided dataset of one image size, in which each network has files of its own."""

    def __init__(self, folder, side):
        from stages.data.params import PartitionParams
        from stages.partition import partition

        self.run = folder / f"{side}"
        partition("digits", self.run, params=PartitionParams(clients=40, image_size=side), seed=0)
        self.data = self.run / "clients/00/private/data.parquet"

    def model(self, params, number):
        from stages.init_model import init_model
        from stages.registry import NETWORKS

        out = self.run / f"public/model-{number}.safetensors"
        init_model(self.run / "public/test.parquet", out, params=NETWORKS.from_mapping(params), seed=0)
        return out

    def private(self, name):
        return self.run / f"clients/00/private/{name}.safetensors"

    def sent(self, name):
        return self.run / f"clients/00/outbox/{name}.safetensors"

    def made(self, name):
        return self.run / f"server/outbox/{name}.safetensors"


def train(place, model, name, **params):
    from stages.registry import ALGORITHMS
    from stages.train_client import train_client

    algorithm = ALGORITHMS.from_mapping({"batch_size": 4, **params})
    out = place.private(name)
    state = place.private(f"{name}-state") if algorithm.keeps_state else None
    train_client(model, [place.data], out, params=algorithm, seed=0, state_out=state)
    return moved(out)


def send(place, model, source, name, **params):
    from stages.encode import encode
    from stages.registry import ENCODERS

    encode(model, source, place.sent(name), params=ENCODERS.from_mapping(params))
    return place.sent(name)


def receive(place, model, message, name, **params):
    from stages.aggregate import aggregate
    from stages.registry import RULES

    rule = RULES.from_mapping(params)
    seeded = {"seed": 0} if rule.rule in ("fedlap", "feddm") else {}
    aggregate(model, [message], place.made(name), params=rule, **seeded)
    return moved(place.made(name), model)


def moved(path, start=None):
    """Every number is finite, and some are not what they were."""
    from artifacts.formats import tensors_file

    tensors = tensors_file.read(path).tensors
    before = tensors_file.read(start).tensors if start is not None else {}
    assert all(np.isfinite(tensor).all() for tensor in tensors.values()), path
    assert any((tensor != before.get(name, 0)).any() for name, tensor in tensors.items()), path
    return path


def averaging(place, model, n):
    update = train(place, model, f"{n}-fedavg", algorithm="fedavg", local_steps=1)
    train(place, model, f"{n}-scaffold", algorithm="scaffold", local_steps=1)
    if model.stat().st_size < LARGE:
        for algorithm in ("fedprox", "feddyn", "fednova"):
            train(place, model, f"{n}-{algorithm}", algorithm=algorithm, local_steps=1)
        train(place, model, f"{n}-fedsgd", algorithm="fedsgd", batch_size=None)
    receive(place, model, send(place, model, update, f"{n}-delta", method="delta"), f"{n}-mean", rule="mean")


def fedpvr(place, model, n):
    train(place, model, f"{n}-fedpvr", algorithm="fedpvr", local_steps=1)


def dp_fedsam(place, model, n):
    update = train(place, model, f"{n}-sam", algorithm="fedavg", local_steps=1, sam_rho=0.5, adaptive_sam=True)
    message = send(place, model, update, f"{n}-sam", method="delta", clip_norm=0.2)
    options = {"clip_norm": 0.2, "noise_multiplier": 1.0, "sampling_rate": 0.5, "clients": 40}
    receive(place, model, message, f"{n}-dp-mean", rule="dp-mean", **options)


def dp_sgd(place, model, n):
    train(place, model, f"{n}-dp", algorithm="fedavg", local_steps=1, **_NOISE)


def tofu(place, model, n):
    update = place.private(f"{n}-fedavg")  # of the first column
    send(place, model, update, f"{n}-tofu", method="tofu", images=8, iterations=2, least_cosine=0.0)


def public_images(place, model, n):
    update = place.private(f"{n}-fedavg")
    send(place, model, update, f"{n}-public", method="public-images", images=4, iterations=2, least_cosine=0.0)


def fedlap(place, model, n, **noise):
    params = {"images_per_class": 1, "points": 2, "batches": 1, "image_steps": 1, "model_steps": 1, "image_rate": 1e-6}
    params |= {"classes": "0,1"} if noise else {"radius_steps": 1, "radius_examples": 4}
    name = f"{n}-fedlap{'-dp' if noise else ''}"
    surrogate = send(place, model, place.data, name, method="fedlap", batch_size=4, **params, **noise)
    rule = {"strategy": "fixed", "server_steps": 1, "weights": "uniform"}
    receive(place, model, surrogate, name, rule="fedlap", **rule)


def fedlap_dp(place, model, n):
    fedlap(place, model, n, **_NOISE)


def feddm(place, model, n, **noise):
    params = {"images_per_class": 1, "iterations": 1, "steps_per_look": 1, "image_rate": 0.01}
    params |= {} if noise else {"batch_size": 4}
    name = f"{n}-feddm{'-dp' if noise else ''}"
    surrogate = send(place, model, place.data, name, method="feddm", **params, **noise)
    receive(place, model, surrogate, name, rule="feddm", server_epochs=1)


def feddm_dp(place, model, n):
    feddm(place, model, n, **{**_NOISE, "classes": "all"})


METHODS = {
    "FedAvg and family": averaging,
    "FedPVR": fedpvr,
    "DP-FedSAM": dp_fedsam,
    "DP-SGD": dp_sgd,
    "TOFU": tofu,
    "public images": public_images,
    "FedLAP": fedlap,
    "FedLAP-DP": fedlap_dp,
    "FedDM": feddm,
    "FedDM-DP": feddm_dp,
}


def cells(folder, rows):
    """What each method says of each network: None where it works, or the refusal."""
    from artifacts.errors import FedsynthError
    from stages.plugins import using

    found = {}
    with using([str(OWN)]):
        for row in rows:
            params, side = NETWORKS[row]
            place = place_in(folder, side)
            number = list(NETWORKS).index(row)
            model = place.model(params, number)
            for method, step in METHODS.items():
                try:
                    step(place, model, number)
                    found[row, method] = None
                except FedsynthError as error:
                    found[row, method] = str(error)
            for path in place.run.glob(f"*/**/{number}-*.safetensors"):
                path.unlink()
            model.unlink()
    return found


def shown(text):
    """A refusal as it is for any network of its kind, as the docs have it."""
    text = re.sub(r"^--(method|algorithm) [\w-]+( does not work with --arch [\w:-]+)?: ", "", text)
    text = re.sub(r"^differential privacy: ", "", text)
    text = re.sub(r"^[\w.]+ is a batch norm", "a batch norm", text)
    return text[0].upper() + text[1:]


def table(found):
    """As it is in the docs: yes, or the number of a sentence below."""
    notes = []
    lines = [f"| network | {' | '.join(METHODS)} |", "|---" * (len(METHODS) + 1) + "|"]
    for row in NETWORKS:
        words = []
        for method in METHODS:
            said = found[row, method]
            if said is None:
                words.append("yes")
                continue
            said = shown(said)
            if said not in notes:
                notes.append(said)
            words.append(f"no ({notes.index(said) + 1})")
        lines.append(f"| {row} | {' | '.join(words)} |")
    lines += ["", *(f"{number}. «{said}»" for number, said in enumerate(notes, start=1))]
    return "\n".join(lines)


def written():
    """The table in the docs, as it is, and each cell of it: None for yes, or the sentence."""
    text = PAGE.read_text().partition(BEGIN)[2].partition(END)[0].strip()
    lines = text.splitlines()
    notes = [line.partition("«")[2].rstrip("»") for line in lines if line[:1].isdigit()]
    found = {}
    for line in lines[2:]:
        row, *words = (word.strip() for word in line.strip("|").split("|"))
        if row in NETWORKS:
            for method, word in zip(METHODS, words, strict=True):
                found[row, method] = None if word == "yes" else notes[int(word[4:-1]) - 1]
    return text, found


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    folder = Path(tempfile.mkdtemp())
    try:
        made = table(cells(folder, NETWORKS))
    finally:
        shutil.rmtree(folder)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{made}\n{END}{rest.partition(END)[2]}")
