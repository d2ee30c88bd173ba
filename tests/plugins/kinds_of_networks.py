"""A plug-in: one small network for each kind of layer that somebody may bring."""

from dataclasses import dataclass
from typing import Literal

from stages.hyperparameters import hyper
from stages.nets.params import Network
from stages.registry import NETWORKS


@NETWORKS.register
@dataclass(frozen=True, kw_only=True)
class Kind(Network):
    arch: Literal[
        "own-tied",
        "own-dropout",
        "own-no-bias",
        "own-two-parts",
        "own-batch-norm",
        "own-position-embedding",
        "own-pixel-embedding",
        "own-attention",
        "own-lstm",
        "own-gru",
        "own-depthwise",
        "own-convolution-1d",
        "own-convolution-3d",
        "own-layer-norm",
        "own-fused",
        "own-branching",
    ] = hyper("own-tied", "own-…: a small network with that kind of layer")

    def made_for(self, shape):
        return MADE[self.arch](shape.channels, shape.height, shape.width, shape.num_classes)


def _modules():
    import torch
    from torch import nn

    from stages.nets.net import Net

    def rows(x):
        """An image as a sequence of its rows."""
        return x.transpose(1, 2).flatten(2)

    class Tied(nn.Module):
        def __init__(self, c, h, w, classes):
            super().__init__()
            self.first, self.second = nn.Linear(c * h * w, 12), nn.Linear(12, 12)
            self.third, self.last = nn.Linear(12, 12, bias=False), nn.Linear(12, classes)
            self.third.weight = self.second.weight

        def forward(self, x):
            return self.last(self.third(torch.relu(self.second(torch.relu(self.first(x.flatten(1)))))).tanh())

    class Positions(nn.Module):
        def __init__(self, c, h, w, classes):
            super().__init__()
            self.place, self.row, self.last = nn.Embedding(h, 8), nn.Linear(c * w, 8), nn.Linear(8, classes)

        def forward(self, x):
            places = torch.arange(x.shape[2], device=x.device)
            return self.last(torch.tanh(self.row(rows(x)) + self.place(places)).mean(1))

    class Pixels(nn.Module):
        def __init__(self, *shape):
            super().__init__()
            self.level, self.last = nn.Embedding(17, 8), nn.Linear(8, shape[-1])

        def forward(self, x):
            return self.last(self.level((x.flatten(1) * 8 + 8).clamp(0, 16).long()).mean(1))

    class Attention(nn.Module):
        def __init__(self, c, _, w, classes):
            super().__init__()
            self.row, self.last = nn.Linear(c * w, 8), nn.Linear(8, classes)
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x):
            t = self.row(rows(x))
            return self.last(self.attention(t, t, t, need_weights=False)[0].mean(1))

    class Recurrent(nn.Module):
        def __init__(self, layer, c, _, w, classes):
            super().__init__()
            self.layer, self.last = layer(c * w, 8, batch_first=True), nn.Linear(8, classes)

        def forward(self, x):
            return self.last(self.layer(rows(x))[0][:, -1])

    class Volume(nn.Module):
        """An image as a volume of depth one."""

        def __init__(self, c, h, w, classes):
            super().__init__()
            self.volume, self.last = nn.Conv3d(c, 4, (1, 3, 3), padding=(0, 1, 1)), nn.Linear(4 * h * w, classes)

        def forward(self, x):
            return self.last(torch.relu(self.volume(x[:, :, None])).flatten(1))

    class Fused(nn.Module):
        """hardsigmoid, called as a function: torch has no second derivative of it."""

        def __init__(self, c, h, w, classes):
            super().__init__()
            self.first, self.last = nn.Linear(c * h * w, 8), nn.Linear(8, classes)

        def forward(self, x):
            return self.last(nn.functional.hardsigmoid(self.first(x.flatten(1))))

    class Branching(nn.Module):
        """Another way for dark images than for bright ones."""

        def __init__(self, c, h, w, classes):
            super().__init__()
            self.first, self.last = nn.Linear(c * h * w, 8), nn.Linear(8, classes)

        def forward(self, x):
            h = self.first(x.flatten(1))
            return self.last(torch.relu(h) if float(x.mean()) > 0 else torch.tanh(h))

    def two_parts(c, h, w, classes):
        return Net(
            nn.Sequential(nn.Flatten(), nn.Linear(c * h * w, 8), nn.ReLU()), nn.Sequential(nn.Linear(8, classes))
        )

    def layers(*middle, channels=8, bias=True):
        def make(c, h, w, classes):
            head = nn.Linear(channels * h * w, classes, bias=bias)
            return nn.Sequential(
                nn.Conv2d(c, channels, 3, padding=1, bias=bias), nn.ReLU(), *middle, nn.Flatten(), head
            )

        return make

    def along_rows(c, h, w, classes):
        return nn.Sequential(
            nn.Flatten(1, 2), nn.Conv1d(c * h, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * w, classes)
        )

    def normed(c, h, w, classes):
        return nn.Sequential(nn.Flatten(), nn.Linear(c * h * w, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, classes))

    return {
        "own-tied": Tied,
        "own-dropout": layers(nn.Dropout(0.3), nn.Dropout2d(0.3)),
        "own-no-bias": layers(bias=False),
        "own-two-parts": two_parts,
        "own-batch-norm": lambda *shape: layers(nn.BatchNorm2d(8))(*shape),
        "own-position-embedding": Positions,
        "own-pixel-embedding": Pixels,
        "own-attention": Attention,
        "own-lstm": lambda *shape: Recurrent(nn.LSTM, *shape),
        "own-gru": lambda *shape: Recurrent(nn.GRU, *shape),
        "own-depthwise": lambda *shape: layers(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.ReLU())(*shape),
        "own-convolution-1d": along_rows,
        "own-convolution-3d": Volume,
        "own-layer-norm": normed,
        "own-fused": Fused,
        "own-branching": Branching,
    }


class _Lazily(dict):
    """torch is imported when the first network is built."""

    def __missing__(self, name):
        self.update(_modules())
        return self[name]


MADE = _Lazily()
