"""`evaluate MODEL DATA --surface P.png`: how sharp the minimum is that a model lies in, in numbers and as a picture.

DP-FedSAM, Fig. 1 and Appendix C. The loss on the whole dataset along two random directions whose filters are as long
as the model's own (Li et al. 2018), so that two models can be compared; how far it rises in one step of SAM; and the
Hessian's largest eigenvalue. The numbers are private if the data is.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.errors import InputError, UsageError
from artifacts.kinds import Custody
from artifacts.publish import prepare, prepare_private
from artifacts.writing import atomic
from stages.data.dataset_images import open_dataset
from stages.evaluate.accuracy import read_fitting_model
from stages.execution.progress import Report, Summary, silent
from stages.execution.randomness import stream_seed
from stages.models.file import round_of, to_module
from stages.pictures.surface import surface_picture

if TYPE_CHECKING:
    import torch

    from stages.execution.torch_setup import Device

RHO = 0.05
_DIGITS = 6


def evaluate_surface(
    model: Path,
    data: Path,
    out: Path,
    *,
    surface: Path,
    span: float = 1.0,
    points: int = 21,
    seed: int = 0,
    sharpness_rho: float = RHO,
    batch_size: int = 500,
    device: Device = "auto",
    force: bool = False,
    report: Report = silent,
) -> Summary:
    """Write the sharpness and draw the surface from −span to span, `points` each way; both by `seed`."""
    _check(span, points, sharpness_rho)
    dataset = open_dataset(data)
    custody: Custody = "private" if dataset.metadata.custody == "private" else "public"
    for path in (out, surface):
        if custody == "private":
            prepare_private(path)
        else:
            prepare(path, custody)
    trained, _ = read_fitting_model(model, data, dataset)
    content = dataset.content

    import torch

    from stages.data.device_images import DeviceImages
    from stages.execution.torch_setup import set_up
    from stages.methods import sharpness

    where = set_up(device)
    module = to_module(trained, where)
    weights = {name: tensor.detach() for name, tensor in module.named_parameters()}
    images, labels = DeviceImages(content.images, where), torch.from_numpy(content.labels).to(where)
    parts = sharpness.dataset_loss(module, images, labels, batch_size=batch_size)
    loss = sharpness.loss_at(parts, weights)
    if not math.isfinite(loss):
        raise InputError(f"{model} has no finite loss on {data}: its training diverged. Take an earlier round's model.")

    def generator(of: str) -> torch.Generator:
        return torch.Generator().manual_seed(stream_seed(seed, stage="evaluate", of=of))

    rise = sharpness.ascent_sharpness(parts, weights, sharpness_rho)
    report(0, points, "Hessian")
    curvature = sharpness.largest_eigenvalue(parts, weights, generator("hessian"))
    steps = [span * (2 * number / (points - 1) - 1) for number in range(points)]
    directions = sharpness.filter_normalised_directions(weights, generator("surface"))
    losses = sharpness.loss_surface(parts, weights, directions, steps, report)
    metrics: dict[str, Any] = {
        "custody": custody,
        "round": round_of(trained),
        "num_examples": len(content),
        "loss": _rounded(loss),
        "sharpness_rho": sharpness_rho,
        "sharpness": _rounded(rise),
        "hessian_eigenvalue": _rounded(curvature.value),
        "hessian_residual": _rounded(curvature.residual),
        "seed": seed,
        "span": span,
        "points": points,
        "surface": {
            "steps": [round(step, _DIGITS) for step in steps],
            "losses": [[_rounded(loss) for loss in row] for row in losses],
        },
    }
    title = (
        f"round {metrics['round']}: loss {loss:.3g}; up by {rise:.3g} within ρ = {sharpness_rho:g}; "
        f"largest curvature {curvature.value:.3g}"
    )
    atomic.write(surface, [surface_picture(steps, losses, title)], force=force, custody=custody)
    atomic.write_json(out, metrics, force=force)
    return {"out": str(out), **metrics}


def _check(span: float, points: int, rho: float) -> None:
    if not 0 < span < math.inf:
        raise UsageError(f"--span is a length above 0, found {span:g}.")
    if points < 3 or points % 2 == 0:
        raise UsageError(f"--points is an odd number from 3 on, so that the model is in the middle; found {points}.")
    if not 0 < rho < math.inf:
        raise UsageError(f"--sharpness-rho is a length above 0, found {rho:g}.")


def _rounded(value: float) -> float | None:
    """None for what is no number any more: JSON has neither NaN nor infinity."""
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
