"""A generator's gradient step stays where the images are, shown as in tests/methods/test_placement.py."""

import numpy as np
import pytest
import torch

from stages.data.device_images import DeviceImages
from stages.methods.generator_training import MeanMatching, batch_gradients
from stages.methods.heterogeneity import gradient_moments
from stages.nets.build import build
from stages.nets.generator_params import ImageShape
from stages.nets.params import InputShape
from stages.registry import GENERATORS, NETWORKS

META = torch.device("meta")
IMAGES = np.zeros((12, 1, 8, 8), np.uint8)
SHAPE = ImageShape(channels=1, height=8, width=8, num_classes=3)
OPTIONS = {"vae": {"capacity": 3.0}}


def step(word, labels_on=META, **options):
    params = GENERATORS.from_mapping({"family": word, **OPTIONS.get(word, {})})
    family = params.build(SHAPE)
    first = family.initial(torch.Generator().manual_seed(0))
    weights = {name: tensor.to(META).requires_grad_(True) for name, tensor in first.items()}
    labels = torch.zeros(12, dtype=torch.int64, device=labels_on)
    gradients = batch_gradients(
        family, DeviceImages(IMAGES, META), labels, 6, lambda number: torch.Generator().manual_seed(number), **options
    )
    found = []
    for part in family.parts:
        names = [name for name in weights if name.startswith(f"{part.name}.")]
        tensors, loss = gradients(1)(part, weights, names)
        found += [*tensors, loss]
    return found


def families():
    """Those whose steps see images; DP-MERF looks at them once, before its steps."""
    return [
        word
        for word in GENERATORS.words
        if not isinstance(GENERATORS.from_mapping({"family": word}).build(SHAPE), MeanMatching)
    ]


@pytest.mark.parametrize("word", families())
@pytest.mark.parametrize("options", [{}, {"micro_batch": 3}])
def test_a_step_stays_on_the_device(word, options):
    found = step(word, **options)
    assert found and {tensor.device for tensor in found} == {META}


def test_what_is_not_on_the_device_is_found():
    with pytest.raises((RuntimeError, NotImplementedError)):
        step("vae", labels_on=torch.device("cpu"))


def test_sums_of_gradients_cross_once_at_the_end():
    """ζ² and σ²: no chunk comes to the host; the mean does, after all of them."""
    module = build(
        NETWORKS.from_mapping({"arch": "convnet", "width": 4, "depth": 2}),
        InputShape(channels=1, height=8, width=8, num_classes=3),
    ).to(META)
    seen = []

    class Counted(DeviceImages):
        def __getitem__(self, rows):
            seen.append(rows)
            return super().__getitem__(rows)

    with pytest.raises((RuntimeError, NotImplementedError)):
        gradient_moments(module, Counted(IMAGES, META), torch.zeros(12, dtype=torch.int64, device=META), chunk=4)
    assert len(seen) == 3, "the first copy to the host comes after all three chunks"
