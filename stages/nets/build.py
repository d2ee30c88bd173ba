"""Make a network, and give it its first weights from a seed, without touching global random state.

Torch's own constructors draw the weights from global random state. A network whose layers we know is therefore built
on the meta device, which draws nothing, and `initialise` fills it from the generator that it is given. A module with a
scheme of its own is built while the global generators are borrowed: seeded for it, and put back afterwards.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from stages.nets.adopt import adopt, try_forward
from stages.nets.params import InitialWeights, InputShape, Network
from stages.nets.state import freeze, load
from stages.nets.torchvision_door import opened_for


def skeleton(params: Network, shape: InputShape) -> nn.Module:
    """The network without memory for its weights (on the meta device), to compare a file's shapes with.

    Raises `ValueError` where the network cannot take images of this size. Somebody else's module may need memory to be
    built at all: then it has some.
    """
    try:
        with torch.device("meta"):
            return _made(params, shape)
    except ValueError:
        raise
    except Exception:
        if params.initial_weights != "module":
            raise
        return new_network(params, shape, 0)


def with_weights(params: Network, shape: InputShape, weights: Mapping[str, Tensor]) -> nn.Module:
    """The network with the weights of a file, which have the names and shapes of its `skeleton`."""
    net = skeleton(params, shape)
    if net.state_dict().keys() == weights.keys() and not _computes(net):
        net.load_state_dict(weights, assign=True)
    else:  # with memory: buffers that no file holds are computed, and tied parameters stay tied
        net = new_network(params, shape, 0)
        load(net, weights)
    if params.initial_weights == "module":
        try_forward(net, shape)
    freeze(net, params.freeze)
    return net


def build(params: Network, shape: InputShape) -> nn.Module:
    """The network on the CPU, its weights NaN until `initialise` or `load_state_dict` fills them."""
    net = skeleton(params, shape)
    net.to_empty(device="cpu")
    # Left as it is, the memory holds whatever was there before: plausible numbers, other ones each time.
    for tensor in itertools.chain(net.parameters(), net.buffers()):
        tensor.detach().fill_(math.nan if tensor.is_floating_point() else 0)
    return net


def new_network(params: Network, shape: InputShape, seed: int) -> nn.Module:
    """The network on the CPU with its first weights, by the scheme that it names; the same for the same seed."""
    if params.initial_weights == "module":
        module = _built(params, shape, seed)
        try_forward(module, shape)
        return module
    net = build(params, shape)
    initialise(net, torch.Generator().manual_seed(seed), params.initial_weights)
    return net


def _computes(module: nn.Module) -> bool:
    """Whether it has buffers that are no part of its state: a file does not hold them."""
    return len(dict(module.named_buffers()).keys() - module.state_dict().keys()) > 0


def _made(params: Network, shape: InputShape) -> nn.Module:
    module = params.made_for(shape)
    return adopt(module, shape) if params.initial_weights == "module" else module


def _built(params: Network, shape: InputShape, seed: int) -> nn.Module:
    """Somebody else's module. Whatever goes wrong in their code is said in a sentence."""
    try:
        with _seeded(seed):
            return _made(params, shape)
    except ValueError:
        raise
    except (Exception, SystemExit) as error:
        if opened_for(error):
            return _built(params, shape, seed)  # from the seed again: some of it may have been drawn already
        reason = (str(error) or "no reason given").splitlines()[0].rstrip(".")
        raise ValueError(f"its build fails: {type(error).__name__}: {reason}") from error


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """The global generators that a constructor may draw from, torch's, numpy's and Python's, borrowed."""
    drawn, drawn_by_numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed % 2**32)
            yield
    finally:
        random.setstate(drawn)
        np.random.set_state(drawn_by_numpy)


def initialise(module: nn.Module, generator: torch.Generator, scheme: InitialWeights = "layers") -> None:
    """Fill all weights and buffers of `module`, drawing in the order in which its layers were registered.

    `generator` must be on the module's device.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            _FILL[scheme](layer, generator)
        elif isinstance(layer, nn.GroupNorm | nn.BatchNorm2d):
            layer.reset_parameters()  # ones, zeros and empty statistics: nothing is drawn
        elif any(True for _ in itertools.chain(layer.parameters(recurse=False), layer.buffers(recurse=False))):
            raise TypeError(f"no initial weights are known for a layer of type {type(layer).__name__}")


def _by_layer(layer: nn.Conv2d | nn.Linear, generator: torch.Generator) -> None:
    nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
    if layer.bias is not None:
        bound = 1 / math.sqrt(layer.weight[0].numel())
        nn.init.uniform_(layer.bias, -bound, bound, generator=generator)


def _he_normal(layer: nn.Conv2d | nn.Linear, generator: torch.Generator) -> None:
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu", generator=generator)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


_FILL = {"layers": _by_layer, "he-normal": _he_normal}
