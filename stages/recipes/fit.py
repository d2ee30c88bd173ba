"""Whether a recipe's network and generators fit the size of its images: said before anything is done.

The size is that of the first image. What cannot be known yet is left to the stage that finds out.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from artifacts.errors import UsageError
from stages.data.sources import first_shape
from stages.recipes.plan import check
from stages.recipes.recipe import Recipe
from stages.recipes.surrogate_steps import sends_surrogates

_log = logging.getLogger("fedsynth")
_LARGEST_OF_DIGITS = 16


def check_fit(recipe: Recipe) -> None:
    """Refuse a network that cannot take the images; warn of values that were not chosen for the network or the size."""
    shape = first_shape(recipe.section("partition"))
    if shape is None:
        return
    params = check(recipe)
    for warning in _untried(recipe, min(shape[1:])):
        _log.warning("warning: %s", warning)
    # A constructor that draws its own weights may do anything; it is not called twice.
    if "init-model" in params and params["init-model"].initial_weights != "module":
        _check_network(params["init-model"], shape)
    if recipe.synthetic != "none" and "train-generator" in params:
        for warning in params["train-generator"].warnings(min(shape[1:])):
            _log.warning("warning: %s.", warning)


def _untried(recipe: Recipe, side: int) -> Iterator[str]:
    """What nobody has measured: the recipe with this network, or with images of this size."""
    arch = recipe.section("init-model").get("arch")
    if recipe.networks and arch not in recipe.networks:
        yield (
            f"{recipe.name} was ahead of FedAvg on images of this size with {', '.join(recipe.networks)}. "
            f"That it is with {arch} was not shown: compare with fedlap-fedavg."
        )
    makes_images = recipe.synthetic != "none" or sends_surrogates(recipe)
    source = recipe.origins.get("partition.source")
    own_images = source is not None and source.source == "--set"
    from_preset = any("/" in origin.source for origin in recipe.origins.values())
    if makes_images and own_images and side > _LARGEST_OF_DIGITS and not from_preset:
        yield (
            f"the values of {recipe.name} were chosen for digits of 8×8, and it has no preset for images of "
            f"{side}×{side}: fedlap, feddm and fedssyn have one, called 28x28."
        )


def _check_network(network: Any, shape: tuple[int, int, int]) -> None:
    import torch

    from stages.nets.params import InputShape

    channels, height, width = shape
    try:
        with torch.device("meta"):
            network.made_for(InputShape(channels=channels, height=height, width=width, num_classes=2))
    except ValueError as error:
        raise UsageError(
            f"--arch {network.arch} does not fit images of {height}×{width}: {error}. Choose another network with "
            "--set init-model.arch=…, or another size with --set partition.image_size=…. Nothing was done."
        ) from error
