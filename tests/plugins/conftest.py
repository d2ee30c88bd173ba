"""A plug-in as one file: a network with tied weights, a buffer, dropout and a layer without bias."""

import pytest

NETWORK = '''
"""A network of somebody else's."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from stages.hyperparameters import hyper
from stages.nets.params import Network
from stages.registry import NETWORKS


@NETWORKS.register
@dataclass(frozen=True, kw_only=True)
class Tied(Network):
    reference: ClassVar[str] = "made up"

    arch: Literal["tied"] = hyper("tied", "tied: two layers of one weight")
    units: int = hyper(12, "tied: units of each layer")

    @staticmethod
    def build(shape, *, units):
        import torch
        from torch import nn

        class Module(nn.Module):
            def __init__(self):
                super().__init__()
                pixels = shape.channels * shape.height * shape.width
                self.register_buffer("mean", torch.full((1,), 0.3))
                self.register_buffer("passing", torch.arange(3.0), persistent=False)
                self.first = nn.Linear(pixels, units, bias=False)
                self.second = nn.Linear(units, units)
                self.third = nn.Linear(units, units, bias=False)
                self.third.weight = self.second.weight
                self.drop = nn.Dropout(0.1)
                self.last = nn.Linear(units, shape.num_classes)

            def forward(self, x):
                h = torch.relu(self.first((x - self.mean).flatten(1)))
                h = torch.relu(self.third(self.drop(torch.relu(self.second(h)))))
                return self.last(h) + 0 * self.passing.sum()

        return Module()
'''


@pytest.fixture
def plugin(tmp_path):
    path = tmp_path / "my_net.py"
    path.write_text(NETWORK)
    return path


@pytest.fixture(scope="session")
def network_source():
    return NETWORK


@pytest.fixture(autouse=True)
def nothing_stays():
    """What a test loads is gone after it."""
    from stages.plugins import using

    with using([]):
        yield
