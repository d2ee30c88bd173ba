"""`encode --method public-images`: an update as residuals on images that everybody draws from the model."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from artifacts.kinds import Custody
from artifacts.places import PRIVATE
from stages.execution.progress import Report, Summary, silent
from stages.methods.params.public_images import PublicImages
from stages.models.file import network_of, to_module
from stages.proxies.encoder import arriving_cosine, check_network
from stages.proxies.file import sent_averages
from stages.proxies.residuals_file import carried_by_residuals, public_images
from stages.updates.client import Outgoing

if TYPE_CHECKING:
    from stages.execution.torch_setup import Device


def encode_on_public_images(
    model: Path,
    update: Path,
    out: Path,
    *,
    params: PublicImages,
    key: Path | None = None,
    client: str | None = None,
    device: Device = "auto",
    force: bool = False,
    report: Report = silent,
) -> Summary:
    """Write the residuals into an outbox; or, for `secagg mask`, into private/.

    The summary says the cosine that the receiver will get. Under masks nobody learns how good one client's is, and a
    refusal would show who has an update that hardly arrives, or diverged: it goes with the others', or as zeros.
    """
    custody: Custody = "private" if out.absolute().parent.name == PRIVATE else "outbound"
    masked = custody == "private"
    made = Outgoing.read(
        model, update, out, kind="update", custody=custody, key=key, client=client, may_be_zeros=masked
    )
    metadata = made.described(params, disclosed=[], libraries=["torch"])
    made.check(metadata, force=force)
    start, change = made.start, made.change

    import torch

    from stages.execution.torch_setup import arithmetic, set_up
    from stages.methods.public_images import solve
    from stages.nets.state import trained

    where = set_up(device)
    metadata = replace(metadata, arithmetic=arithmetic(where))
    module = to_module(start, where)
    check_network(params, module, *network_of(start.metadata, model), images_move=False)
    wanted = {n: torch.from_numpy(change.tensors[n].copy()).to(where) for n in trained(module)}
    report(0, 1, "least squares")
    found = solve(module, wanted, public_images(start, params, module), params)
    report(1, 1, "least squares")
    sent: dict[str, NDArray[Any]] = {"residuals": found.cpu().numpy(), **sent_averages(change.tensors, wanted)}
    cosine = arriving_cosine(carried_by_residuals(module, start, sent, params), wanted)
    if masked and not all(np.isfinite(tensor).all() for tensor in sent.values()):
        sent = {name: np.zeros_like(tensor) for name, tensor in sent.items()}
    if not masked and not (cosine > 0 and cosine >= params.least_cosine):  # also where it is not a number
        raise InputError(
            f"{update}: {params.images} public images decode to a cosine of {cosine:.3f}; --least-cosine is "
            f"{params.least_cosine:g}. Give more --images or --iterations, or another --method."
        )
    return made.write(sent, metadata, force=force, cosine=round(cosine, 6) if math.isfinite(cosine) else 0.0)
