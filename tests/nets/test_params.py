"""The declaration of the networks: defaults, refusals, and no torch."""

import subprocess
import sys

import pytest

from stages.nets.params import InputShape
from stages.registry import NETWORKS


def test_the_declaration_is_free_of_torch():
    code = "import sys, stages.nets.params\nassert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def net(**values):
    return NETWORKS.from_mapping(values)


def test_default_sizes():
    assert net().arch == "convnet"
    assert (net().width, net().depth) == (128, 3)
    assert (net(arch="mlp").width, net(arch="mlp").depth) == (64, 1)
    assert (net(arch="mlp", width=5).width, net(arch="convnet", depth=2).depth) == (5, 2)


def test_json_states_every_parameter_and_comes_back():
    assert net().to_json() == {"arch": "convnet", "width": 128, "depth": 3}
    assert net(arch="mlp", depth=2).to_json() == {"arch": "mlp", "width": 64, "depth": 2}
    assert net(arch="vgg11").to_json() == {"arch": "vgg11"}
    for arch in NETWORKS.words:
        assert NETWORKS.from_mapping(net(arch=arch).to_json()) == net(arch=arch)


def test_each_names_its_source_and_the_scheme_of_its_first_weights():
    schemes = {arch: NETWORKS.chosen({"arch": arch}).initial_weights for arch in NETWORKS.words}
    assert {arch for arch, scheme in schemes.items() if scheme == "he-normal"} == {"vgg11", "vgg13", "resnet18"}
    own = {arch for arch, scheme in schemes.items() if scheme == "module"}
    assert own == {arch for arch in NETWORKS.words if arch.startswith("torchvision:")}
    assert all(NETWORKS.chosen({"arch": arch}).reference for arch in NETWORKS.words)


SIZED = {"width": ["convnet", "mlp", "strided"], "depth": ["convnet", "mlp"]}


@pytest.mark.parametrize(("arch", "name"), [(a, n) for n in SIZED for a in NETWORKS.words if a not in SIZED[n]])
def test_a_net_of_one_size_refuses_another(arch, name):
    with pytest.raises(ValueError, match=f"--{name} goes with --arch {' or '.join(SIZED[name])}; found --arch {arch}"):
        net(arch=arch, **{name: 3})
    assert net(arch=arch, **{name: None}) == net(arch=arch)


@pytest.mark.parametrize("name", ["width", "depth"])
@pytest.mark.parametrize("value", [0, -1])
def test_sizes_are_positive(name, value):
    with pytest.raises(ValueError, match=f"--{name} must be at least 1, found {value}"):
        net(arch="mlp", **{name: value})


def test_an_unknown_net_is_refused():
    with pytest.raises(ValueError, match=r"--arch must be one of convnet, .*found 'vgg16'"):
        net(arch="vgg16")


@pytest.mark.parametrize(
    ("name", "value", "least"),
    [("channels", 0, 1), ("height", -8, 1), ("width", 8.0, 1), ("num_classes", 1, 2), ("num_classes", True, 2)],
)
def test_shapes_check_themselves(name, value, least):
    good = {"channels": 1, "height": 8, "width": 8, "num_classes": 10}
    InputShape(**good)
    with pytest.raises(ValueError, match=f"{name} must be a whole number of at least {least}, found {value!r}"):
        InputShape(**{**good, name: value})
