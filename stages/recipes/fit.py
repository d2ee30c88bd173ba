"""Whether a recipe's network and generators fit the size of its images: said before anything is done.

The size is that of the first image. What cannot be known yet is left to the stage that finds out.
"""

from __future__ import annotations

import logging
from typing import Any

from artifacts.errors import UsageError
from stages.data.sources import first_shape
from stages.recipes.plan import check
from stages.recipes.recipe import Recipe

_log = logging.getLogger("fedsynth")


def check_fit(recipe: Recipe) -> None:
    """Refuse a network that cannot take the images, and warn of a generator that is not made for their size."""
    shape = first_shape(recipe.section("partition"))
    if shape is None:
        return
    params = check(recipe)
    # A constructor that draws its own weights may do anything; it is not called twice.
    if "init-model" in params and params["init-model"].initial_weights != "module":
        _check_network(params["init-model"], shape)
    if recipe.synthetic != "none" and "train-generator" in params:
        for warning in params["train-generator"].warnings(min(shape[1:])):
            _log.warning("warning: %s.", warning)


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
