"""What a method does with a network, tried on blank images before data is read.

Whether it works is a property of the network alone. Somebody else's module is tried before anything is charged or
decoded; that of fedsynth's own networks is known. Each function raises `ValueError`, one sentence with the remedy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from stages.methods.private_local_training import example_loss
from stages.methods.surrogate_nets import LabelledSet, gradient, start_weights
from stages.methods.tofu import traced
from stages.nets.called import called
from stages.nets.dropout import set_dropout_generator
from stages.nets.net import Net
from stages.nets.params import InputShape
from stages.nets.state import file_tensors, trained
from stages.privacy.clipping import example_ways

_IMAGES = 2
# Opacus replaces them by layers of its own; here they run as they are, or are replaced while gradients are taken.
_OURS = (nn.RNNBase, nn.MultiheadAttention)


def check_first_weights(module: nn.Module, again: nn.Module) -> None:
    """Two networks of one seed are the same, and finite."""
    others = file_tensors(again)
    for name, tensor in file_tensors(module).items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise ValueError(f"its first weights are not finite: {name} holds NaN or infinity")
        if not torch.equal(tensor, others[name]):
            raise ValueError(
                f"its first weights do not follow from the seed: {name} differs when the network is built again. Draw "
                "from torch's, numpy's or Python's global generator, which are seeded"
            )


def check_repeats(module: nn.Module, shape: InputShape) -> None:
    """The same images have the same logits once more: else nothing that is made with the network could be replayed."""
    images, _ = _blank(module, shape)
    images += torch.linspace(-1, 1, images.numel()).view_as(images)
    for mode in (False, True):
        module.train(mode)
        found = []
        for _ in range(2):
            set_dropout_generator(module, _generator(module))
            # Copies: what a call writes into a buffer is in a file, and no reason for other logits.
            tensors = {
                name: tensor.detach().clone() for name, tensor in (*module.named_parameters(), *module.named_buffers())
            }
            with torch.no_grad(), _explained():
                found.append(called(module, tensors, images))
        set_dropout_generator(module, None)
        if not torch.equal(*found):
            raise ValueError(
                "the same images have other logits when it is called again, and nothing could be replayed: draw from "
                "nn.Dropout layers alone, and keep what changes from call to call in a buffer, which files hold"
            )


def try_training(module: nn.Module, shape: InputShape) -> None:
    """Every trained parameter has a gradient: without one, nothing that is sent or matched would be defined."""
    images, labels = _blank(module, shape)
    set_dropout_generator(module.train(), _generator(module))
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    named = trained(module)
    with _explained():
        logits = called(module, {**named, **buffers}, images)
        if not logits.requires_grad:
            raise ValueError("no parameter has an effect on the logits that could be differentiated")
        found = torch.autograd.grad(
            nn.functional.cross_entropy(logits, labels), list(named.values()), allow_unused=True
        )
    set_dropout_generator(module, None)
    for name, slope in zip(named, found, strict=True):
        if slope is not None and slope.layout != torch.strided:
            raise ValueError(
                f"the gradient of {name} is {slope.layout}, which no method adds up: leave out sparse=True"
            )
        if slope is None:
            raise ValueError(f"the parameter {name} has no effect on the logits: leave it out, or give --freeze {name}")


def try_example_gradients(module: nn.Module, shape: InputShape, *, training: bool) -> dict[str, list[str]]:
    """DP-SGD, in training, and FedLAP-DP, in evaluation: the gradient of each image of its own.

    Says which layers' gradients are made by our batched passes, by Opacus and by torch's `vmap`.
    """
    images, labels = _blank(module, shape)
    masks = _generator(module)
    set_dropout_generator(module.train(training), masks)
    _refuse_changing(module, images)
    weights = {name: weight.detach() for name, weight in trained(module).items()}
    with _explained():
        ways = example_ways(example_loss(module), weights, (images, labels), shared=masks if training else None)
    set_dropout_generator(module, None)
    found: dict[str, list[str]] = {}
    for name, way in ways.items():
        layers = found.setdefault(way, [])
        layer = name.rpartition(".")[0] or name
        if layer not in layers:
            layers.append(layer)
    return found


def _refuse_changing(module: nn.Module, images: Tensor) -> None:
    """Under differential privacy no buffer may change with the images: it would leave without noise."""
    _refuse_writing(module, images + 0.5)
    before = {name: (buffer, buffer.clone()) for name, buffer in module.named_buffers()}
    with torch.no_grad(), _explained():
        module(images + 0.5)
    after = dict(module.named_buffers())
    for name, (buffer, values) in before.items():
        if after.get(name) is not buffer or not torch.equal(buffer, values):
            raise ValueError(
                f"its buffer {name} changes when images are seen, and would leave without noise: "
                f"keep no state, or give --freeze {name}"
            )


def _refuse_writing(module: nn.Module, images: Tensor) -> None:
    """What is handed in as weights stays as it is: a call that writes into them would go by the images it sees.

    Tried on weights a thousand times as large, as most that is written is a bound of a norm. An operation that writes
    what was there already counts too.
    """
    weights = {name: 1000 * weight.detach() for name, weight in module.named_parameters()}
    tensors = weights | {name: buffer.clone() for name, buffer in module.named_buffers()}
    versions = {name: weight._version for name, weight in weights.items()}
    with torch.no_grad(), _explained():
        called(module, tensors, images)
    for name, weight in module.named_parameters():
        if weights[name]._version != versions[name] or not torch.equal(weights[name], 1000 * weight.detach()):
            raise ValueError(
                f"it writes into its weight {name} when images are seen, and by them (as an embedding with max_norm "
                "does): bound a copy of it, or its gradient"
            )


def refuse_mixing(module: nn.Module) -> None:
    """What Opacus does not train with differential privacy, but for what we have a way of our own."""
    from opacus.validators import ModuleValidator

    for name, layer in module.named_modules():
        checked = layer.training and any(weight.requires_grad for weight in layer.parameters(recurse=False))
        if checked and type(layer) in ModuleValidator.VALIDATORS and not isinstance(layer, _OURS):
            for error in ModuleValidator.VALIDATORS[type(layer)](layer):
                raise ValueError(f"{name}: {str(error).rstrip('.')}")


def try_matching_gradients(module: nn.Module, shape: InputShape) -> None:
    """FedLAP: the gradient of the weights, differentiated by the images."""
    images, labels = _blank(module, shape)
    weights = start_weights(module)  # in evaluation
    _refuse_writing(module, images)
    images.requires_grad_()
    with _explained():
        found = gradient(module, weights, LabelledSet(images, labels), graph=True)
        _by_images(found.values(), images)


def try_proxy(module: nn.Module, shape: InputShape, *, images_move: bool) -> None:
    """TOFU: the same with batch norm in training; on public images, which stay as they are, by the residuals."""
    images, _ = _blank(module, shape)
    images.requires_grad_(images_move)
    with _explained():
        logits, leaves = traced(module, images)
    _refuse_writing(module, images.detach())  # in the mode that `traced` leaves it in
    with _explained():
        residuals = torch.zeros_like(logits, requires_grad=True)
        found = torch.autograd.grad(logits, leaves, residuals, create_graph=True)
        _by_images(found, images if images_move else residuals)


def try_matching_features(module: nn.Module, shape: InputShape) -> Net:
    """FedDM: the embedding and the logits, differentiated by the images."""
    if not isinstance(module, Net) or not isinstance(module.classifier[-1], nn.Linear):
        raise ValueError(
            "feddm matches what comes before the last layer, which the network does not say: let `build` return "
            "stages.nets.net.Net(trunk, classifier), whose classifier ends with the linear layer of the logits"
        )
    from stages.methods.feddm import embedded

    images, _ = _blank(module, shape)
    weights = start_weights(module)  # in evaluation
    _refuse_writing(module, images)
    images.requires_grad_()
    with _explained():
        _by_images([embedded(module, weights, images)], images)
    return module


def try_features_alone(module: Net, shape: InputShape) -> None:
    """FedDM-DP: what is clipped for an image depends on that image alone, whatever is beside it or came before.

    By layers that mix a batch, or that keep something of it, a record would move what the others contribute.
    """
    from stages.methods.feddm import PLACES, embedded

    weights = start_weights(module)
    images = torch.linspace(-1, 1, PLACES * shape.channels * shape.height * shape.width, device=_home(module))
    batch = images.view(PLACES, shape.channels, shape.height, shape.width)
    alone = torch.zeros_like(batch)
    alone[:1] = batch[:1]
    _refuse_changing(module, batch[:_IMAGES])
    with torch.no_grad(), _explained():
        found = [embedded(module, weights, seen)[0] for seen in (alone, batch, alone)]
    if not all(torch.equal(found[0], other) for other in found):
        raise ValueError(
            "its features of an image depend on the images beside or before it, and one record would move the others': "
            "use layers that see each image alone, such as group norm"
        )


def _by_images(found: Iterable[Tensor], images: Tensor) -> None:
    total = sum((part.square().sum() for part in found), start=torch.zeros((), device=images.device))
    torch.autograd.grad(total, images)


def _blank(module: nn.Module, shape: InputShape) -> tuple[Tensor, Tensor]:
    home = _home(module)
    images = torch.zeros(_IMAGES, shape.channels, shape.height, shape.width, device=home)
    return images, torch.arange(_IMAGES, device=home)


def _home(module: nn.Module) -> torch.device:
    return next(module.parameters()).device


def _generator(module: nn.Module) -> torch.Generator:
    return torch.Generator(_home(module)).manual_seed(0)


# What torch says, and what it means for the network's author.
_MEANT = (
    (
        r"derivative for '?(?:aten::)?(\w+?)(?:_backward)?'? is not implemented",
        "torch cannot differentiate {} twice, which this method needs: use another layer in its place",
    ),
    (
        r"Batching rule not implemented for aten::(\w+)",
        "torch has no per-example gradients for {}: use another layer in its place, or --freeze its weights",
    ),
    (
        r"(not have been used in the graph|does not require grad)",
        "no gradient reaches the pixels, which this method moves: the network may not look them up or round them",
    ),
    (
        r"setup_context",
        "per-example gradients need an autograd.Function that has `setup_context` and `generate_vmap_rule = True`",
    ),
    (
        r"escaped from inside",
        "per-example gradients need a forward pass that is run once and keeps no tensor: without activation "
        "checkpointing, and with nothing stored on the module",
    ),
    (
        r"vmap",
        "per-example gradients need a forward pass that is the same for all images: it may not branch on their values, "
        "call .item(), or write into a buffer",
    ),
)  # fmt: skip


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, TypeError, NotImplementedError, IndexError, AttributeError) as error:
        text = str(error) or type(error).__name__
        for pattern, meant in _MEANT:
            if match := re.search(pattern, text):
                raise ValueError(meant.format(match.group(match.re.groups and 1))) from error
        raise ValueError(text.splitlines()[0].rstrip(".")) from error
