"""Nothing in a training's loop leaves the device. Shown on torch's `meta` device, which has shapes and no numbers:
an operation on tensors of two devices is an error there, and so is a copy to the host."""

import numpy as np
import pytest
import torch

from stages.data.device_images import DeviceImages
from stages.methods.local_training import batch_gradients, batches, train_locally
from stages.nets.build import build
from stages.nets.params import InputShape
from stages.nets.state import trained
from stages.registry import ALGORITHMS, NETWORKS

META = torch.device("meta")
IMAGES = np.zeros((12, 1, 8, 8), np.uint8)


def train(algorithm, labels_on=META, **options):
    params = ALGORITHMS.from_mapping({"algorithm": algorithm, **options})
    shape = InputShape(channels=1, height=8, width=8, num_classes=3)
    module = build(NETWORKS.from_mapping({"arch": "convnet", "width": 4, "depth": 2}), shape).to(META)
    labels = torch.zeros(12, dtype=torch.int64, device=labels_on)
    total = params.num_steps([12])
    rows = batches(params.num_in_batch(12), 12, total, torch.Generator().manual_seed(0), META)
    return train_locally(
        module,
        batch_gradients(
            module, DeviceImages(IMAGES, META), labels, rows, torch.Generator(), micro_batch=params.micro_batch
        ),
        total=total,
        params=params,
        algorithm=params.client(trained(module), {}, {}),
        round=1,
        report=lambda done, total, loss: None,
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS.words)
@pytest.mark.parametrize("options", [{}, {"micro_batch": 3}])
def test_a_round_stays_on_the_device(algorithm, options):
    result = train(algorithm, **options)
    assert {tensor.device for tensor in (*result.update.values(), *result.state.values())} == {META}


def test_what_is_not_on_the_device_is_found():
    with pytest.raises((RuntimeError, NotImplementedError)):
        train("fedavg", labels_on=torch.device("cpu"))


def test_sam_asks_for_the_length_of_the_gradient():
    """The one number that crosses to the host in each of its steps, as docs/gpu.md says."""
    with pytest.raises(RuntimeError, match="item"):
        train("fedavg", sam_rho=0.05)
