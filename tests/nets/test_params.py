"""The declaration of the networks: defaults, refusals, and no torch."""

import subprocess
import sys
from typing import get_args, get_type_hints

import pytest

from stages.nets.params import InputShape, NetParams

ARCHS = get_args(get_type_hints(NetParams)["arch"])


def test_the_declaration_is_free_of_torch():
    code = "import sys, stages.nets.params\nassert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_default_sizes():
    assert NetParams().arch == "convnet"
    assert NetParams().size() == (128, 3)
    assert NetParams(arch="mlp").size() == (64, 1)
    assert NetParams(arch="mlp", width=5).size() == (5, 1)
    assert NetParams(arch="convnet", depth=2).size() == (128, 2)


def test_json_spells_the_size_out_and_comes_back():
    assert NetParams().to_json() == {"arch": "convnet", "width": 128, "depth": 3}
    assert NetParams(arch="mlp", depth=2).to_json() == {"arch": "mlp", "width": 64, "depth": 2}
    assert NetParams(arch="vgg11").to_json() == {"arch": "vgg11"}
    for arch in ARCHS:
        given = NetParams(arch=arch)
        again = NetParams.from_mapping(given.to_json())
        assert again.to_json() == given.to_json()


@pytest.mark.parametrize("arch", [a for a in ARCHS if a not in {"mlp", "convnet"}])
@pytest.mark.parametrize("name", ["width", "depth"])
def test_a_net_of_one_size_refuses_another(arch, name):
    with pytest.raises(ValueError, match=f"--{name} is for convnet and mlp only; {arch} has one size, found 3"):
        NetParams(arch=arch, **{name: 3})
    with pytest.raises(ValueError, match="neither a width nor a depth"):
        NetParams(arch=arch).size()


@pytest.mark.parametrize("name", ["width", "depth"])
@pytest.mark.parametrize("value", [0, -1])
def test_sizes_are_positive(name, value):
    with pytest.raises(ValueError, match=f"--{name} must be at least 1, found {value}"):
        NetParams(arch="mlp", **{name: value})


def test_an_unknown_net_is_refused():
    with pytest.raises(ValueError, match=r"--arch must be one of softmax, .*found 'vgg16'"):
        NetParams(arch="vgg16")


@pytest.mark.parametrize(
    ("name", "value", "least"),
    [("channels", 0, 1), ("height", -8, 1), ("width", 8.0, 1), ("num_classes", 1, 2), ("num_classes", True, 2)],
)
def test_shapes_check_themselves(name, value, least):
    good = {"channels": 1, "height": 8, "width": 8, "num_classes": 10}
    InputShape(**good)
    with pytest.raises(ValueError, match=f"{name} must be a whole number of at least {least}, found {value!r}"):
        InputShape(**{**good, name: value})
