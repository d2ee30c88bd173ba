"""What happens before the first round where synthetic data is used (Fedssyn, Algorithm I), and who trains on what."""

from __future__ import annotations

from collections.abc import Sequence

from stages.partition import CENTRAL
from stages.recipes.recipe import Recipe
from stages.recipes.step import Step
from stages.run_folder.files import contact_sheet, data_file, generator_file, own_synthetic, shuffled_parts


def training_data(recipe: Recipe, clients: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Everybody who trains, with the datasets: a client's own first, as `--epochs-of first` wants it."""
    match recipe.synthetic:
        case "none":
            return {client: (data_file(client),) for client in clients}
        case "own":
            return {client: (data_file(client), own_synthetic(client, leaves=False)) for client in clients}
        case "shuffled":
            parts = shuffled_parts(len(clients))
            return {client: (data_file(client), part) for client, part in zip(clients, parts, strict=True)}
        case "pooled":
            return {CENTRAL: (shuffled_parts(1)[0],)}


def synthetic_steps(recipe: Recipe, clients: Sequence[str], seed: int) -> list[Step]:
    """Every client trains a generator and synthesises once; what leaves, the server shuffles and deals out."""
    if recipe.synthetic == "none":
        return []
    leaves = recipe.synthetic != "own"
    steps = []
    for client in clients:
        steps += [
            Step(
                command="train-generator",
                owner=client,
                round=0,
                inputs=(data_file(client),),
                out=generator_file(client),
                params=recipe.section("train-generator"),
                options={"seed": seed},
            ),
            Step(
                command="synthesize",
                owner=client,
                round=0,
                inputs=(generator_file(client),),
                out=own_synthetic(client, leaves=leaves),
                also_writes=(contact_sheet(client),),
                params=recipe.section("synthesize"),
                options={"sheet": contact_sheet(client), "seed": seed},
            ),
        ]
    if leaves:
        parts = shuffled_parts(1 if recipe.synthetic == "pooled" else len(clients))
        steps.append(
            Step(
                command="shuffle",
                owner="server",
                round=0,
                inputs=tuple(own_synthetic(client, leaves=True) for client in clients),
                out=parts[0],
                out_folder="server/outbox",
                also_writes=tuple(parts[1:]),
                options={"parts": len(parts), "seed": seed},
            )
        )
    return steps
