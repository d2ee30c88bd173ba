"""Networks that somebody brings: what a plug-in costs, and per-example gradients for each kind of layer.

The first row trains the same perceptron as a plug-in and built in, by `train-client` from files to file: goal, no
difference. Then, for each kind of layer, the clipped sum of a batch of 64 by whichever way is chosen (ours in one
batched pass, Opacus' function for that layer within our two passes, or torch's `vmap`), against Opacus' own module with
its hooks, and against `vmap` alone, which cannot run recurrent layers. Opacus' sums are float32, ours float64.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from measuring import Row, Setting, compared, cpu_seconds, take_turns
from torch import Tensor, nn
from torch.func import functional_call

from stages.data.params import PartitionParams
from stages.execution.torch_setup import set_up
from stages.init_model import init_model
from stages.nets.attention import plain_attention
from stages.partition import partition
from stages.plugins import using
from stages.privacy import clipping
from stages.privacy.clipping import clipped_sum, example_ways
from stages.privacy.example_gradients import Unfit
from stages.registry import ALGORITHMS, NETWORKS
from stages.train_client import train_client

TITLE = "Networks of one's own"
_BATCH = 64
_PLUGIN = """
from dataclasses import dataclass
from typing import Literal
from stages.hyperparameters import hyper
from stages.nets.params import Network
from stages.registry import NETWORKS

@NETWORKS.register
@dataclass(frozen=True, kw_only=True)
class Own(Network):
    arch: Literal["own-mlp"] = hyper("own-mlp", "own-mlp: the built-in perceptron, brought along")

    @staticmethod
    def build(shape):
        from stages.nets.small import mlp
        return mlp(shape, 64, 1)
"""


class _Recurrent(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x)[0]
        return found


class _Attention(_Recurrent):
    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x, x, x, need_weights=False)[0]
        return found


_SEQUENCE, _IMAGE = (16, 64), (32, 14, 14)
_LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear, 64 to 64": (lambda: nn.Linear(64, 64), _SEQUENCE),
    "convolution, 32 channels": (lambda: nn.Conv2d(32, 32, 3, padding=1), _IMAGE),
    "depthwise convolution, 32 channels": (lambda: nn.Conv2d(32, 32, 3, padding=1, groups=32), _IMAGE),
    "convolution in 1-D, 64 channels": (lambda: nn.Conv1d(64, 64, 3, padding=1), (64, 32)),
    "convolution in 3-D, 8 channels": (lambda: nn.Conv3d(8, 8, 3, padding=1), (8, 8, 8, 8)),
    "group norm, 32 channels": (lambda: nn.GroupNorm(8, 32), _IMAGE),
    "layer norm, 64": (lambda: nn.LayerNorm(64), _SEQUENCE),
    "embedding, 1,000 rows of 32": (lambda: nn.Embedding(1000, 32), (16,)),
    "embedding with padding, the same": (lambda: nn.Embedding(1000, 32, padding_idx=0), (16,)),
    "attention, 4 heads of 16": (lambda: _Attention(nn.MultiheadAttention(64, 4, batch_first=True)), _SEQUENCE),
    "LSTM, 64 units": (lambda: _Recurrent(nn.LSTM(64, 64, batch_first=True)), _SEQUENCE),
    "GRU, 64 units": (lambda: _Recurrent(nn.GRU(64, 64, batch_first=True)), _SEQUENCE),
}


def measure(setting: Setting) -> Iterator[Row]:
    set_up("cpu")
    warnings.filterwarnings("ignore", message="Full backward hook is firing")  # Opacus' own
    warnings.filterwarnings("ignore", message="There is a performance drop")  # of vmap
    turns = 1 if setting.smoke else 15 if setting.full else 7
    # A twentieth of a second each: the median of a few would not tell a difference of five hundredths.
    yield _plugin(setting.folder, 3 * turns, steps=2 if setting.smoke else 100)
    for name in list(_LAYERS)[-2 if setting.smoke else 0 :]:
        make, shape = _LAYERS[name]
        torch.manual_seed(0)
        step = _Step(make(), shape)
        sides = {"ours": step.ours, "hooks": step.hooks()}
        if not any(isinstance(layer, nn.RNNBase) for layer in step.module.modules()):
            sides["vmap"] = step.vmap
        taken = take_turns(sides, turns, clock=cpu_seconds)
        what = f"{name}: {' and '.join(sorted(set(step.ways().values())))}"
        yield compared(what, "Opacus' hooks", taken["ours"], taken["hooks"])
        if "vmap" in taken and not what.endswith(": vmap"):
            yield compared(what, "torch's vmap", taken["ours"], taken["vmap"])


def _plugin(folder: Path, turns: int, steps: int) -> Row:
    partition("digits", folder / "run", params=PartitionParams(clients=2), seed=0)
    source = folder / "own.py"
    source.write_text(_PLUGIN)
    data = folder / "run/clients/00/private/data.parquet"
    params = ALGORITHMS.from_mapping({"algorithm": "fedavg", "local_steps": steps})

    def side(arch: str) -> Callable[[], object]:
        model = folder / f"run/public/{arch}.safetensors"
        init_model(folder / "run/public/test.parquet", model, params=NETWORKS.from_mapping({"arch": arch}), seed=0)
        out = data.with_name(f"{arch}.safetensors")
        return lambda: train_client(model, [data], out, params=params, seed=0, force=True)

    with using([str(source)]):
        taken = take_turns({"own": side("own-mlp"), "built in": side("mlp")}, turns, clock=cpu_seconds)
    return compared(f"train-client, {steps} steps of a perceptron", "the same built in", *taken.values(), goal=1.05)


class _Step:
    def __init__(self, module: nn.Module, shape: tuple[int, ...]) -> None:
        self.module = module
        self._x = (
            torch.randint(1000, (_BATCH, *shape)) if isinstance(module, nn.Embedding) else torch.randn(_BATCH, *shape)
        )
        self._weights = {name: weight.detach() for name, weight in module.named_parameters()}

    def _loss(self, weights: dict[str, Tensor], x: Tensor) -> Tensor:
        with plain_attention():
            found: Tensor = functional_call(self.module, weights, (x[None],))
        return found.square().mean()

    def ours(self) -> None:
        clipped_sum(self._loss, self._weights, (self._x,), clip_norm=1.0)

    def ways(self) -> dict[str, str]:
        return example_ways(self._loss, self._weights, (self._x[:2],))

    def vmap(self) -> None:
        fast = clipping.chunk_gradients

        def unfit(*_: Any, **__: Any) -> Any:
            raise Unfit

        clipping.chunk_gradients = unfit
        try:
            self.ours()
        finally:
            clipping.chunk_gradients = fast

    def hooks(self) -> Callable[[], None]:
        from opacus.grad_sample import GradSampleModule
        from opacus.validators import ModuleValidator

        module = GradSampleModule(ModuleValidator.fix(self.module.train()), loss_reduction="sum")

        def step() -> None:
            module.zero_grad()
            loss: Any = module(self._x).square().flatten(1).mean(1).sum()
            loss.backward()
            samples = [parameter.grad_sample.flatten(1) for parameter in module.parameters()]
            norms = torch.stack([sample.norm(dim=1) for sample in samples]).norm(dim=0)
            factors = (1.0 / (norms + 1e-6)).clamp(max=1.0)
            for sample in samples:
                torch.einsum("i,ij->j", factors, sample)

        return step
