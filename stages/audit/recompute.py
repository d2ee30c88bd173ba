"""Which stage made a file, and with which arguments it makes it again. The stages import torch, this does not."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts import dataset_file, tensors_file
from artifacts.commitments import commit
from artifacts.keys import Key
from artifacts.metadata import InputRef, Metadata
from stages.audit.outbound import Seen
from stages.methods.params.local_training import KEEPS_STATE, LocalTraining
from stages.methods.params.surrogates import SurrogateSet
from stages.methods.params.synthesis import Synthesis
from stages.methods.params.tofu import TofuEncoding
from stages.methods.params.variants import ENCODINGS

if TYPE_CHECKING:
    from stages.torch_setup import Device


class UnreplayableError(Exception):
    """Something that the computation needs is not there, or never was a computation."""


@dataclass(frozen=True)
class Recipe:
    """A file to be made again: what it says of itself, and where its inputs are."""

    path: Path
    metadata: Metadata
    path_of: Callable[[InputRef, int | None], Path]
    key: Key
    seeds: Sequence[int]
    sent: Sequence[Seen]
    device: Device

    def inputs(self, role: str) -> list[Path]:
        return [self.path_of(r, self.metadata.round) for r in self.metadata.inputs if r.role == role]

    def input(self, *roles: str) -> Path:
        found = list(itertools.chain.from_iterable(self.inputs(role) for role in roles))
        if not found:
            raise UnreplayableError(f"it names no {' or '.join(roles)}")
        return found[0]

    def optional(self, role: str) -> Path | None:
        return next(iter(self.inputs(role)), None)


# Makes the file at a path, and what else belongs to it: the file itself is one of those that come back.
Make = Callable[[Path], list[Path]]


def recipe_for(recipe: Recipe) -> Make:
    metadata = recipe.metadata
    calls: dict[str, Callable[[Recipe, Path], list[Path]]] = {
        "train-client": _train_client, "train-generator": _train_generator, "synthesize": _synthesize,
        "encode": _encode,
    }  # fmt: skip
    if metadata.stage not in calls:
        raise UnreplayableError(f"nothing is known of how {metadata.stage} computes")
    return lambda out: calls[metadata.stage](recipe, out)


def _train_client(recipe: Recipe, out: Path) -> list[Path]:
    from stages.train_client import train_client

    metadata = recipe.metadata
    params = LocalTraining.from_mapping(metadata.params)
    # Update and state come out of one training, and each is asked for by its own name.
    update, state = out.with_name(f"{out.stem}.update.safetensors"), out.with_name(f"{out.stem}.state.safetensors")
    keeps = params.algorithm in KEEPS_STATE
    train_client(
        recipe.input("model"), recipe.inputs("data"), update, params=params, seed=_seed(metadata),
        state=recipe.optional("state"), server_state=recipe.optional("server-state"),
        state_out=state if keeps else None, device=recipe.device, force=True,
    )  # fmt: skip
    found = [update, *([state] if keeps else [])]
    return found if metadata.kind == "update" else found[::-1]


def _train_generator(recipe: Recipe, out: Path) -> list[Path]:
    from stages.generator_file import described
    from stages.train_generator import train_generator

    params, _, _ = described(recipe.metadata, recipe.path)
    train_generator(
        recipe.inputs("data"), out, params=params, seed=_seed(recipe.metadata), device=recipe.device,
        checkpoint_every=0, force=True,
    )  # fmt: skip
    return [out]


def _synthesize(recipe: Recipe, out: Path) -> list[Path]:
    from stages.synthesize import synthesize

    metadata = recipe.metadata
    about = metadata.params
    if about.get("picked"):
        raise UnreplayableError("someone picked it over: which images were left out is recorded nowhere")
    labels = dataset_file.read(recipe.path).labels
    given = about["labels"] == "given"
    params = Synthesis(
        count=None if given else len(labels),
        labels=about["labels"],
        label_list=",".join(map(str, labels.tolist())) if given else None,
        sampler=about.get("sampler"),
        sampling_steps=about.get("sampling_steps"),
    )
    seed = metadata.seed if metadata.seed is not None else _seed_of_images(recipe, len(labels))
    synthesize(recipe.input("generator"), out, params=params, seed=seed, device=recipe.device, force=True)
    return [out]


def _seed_of_images(recipe: Recipe, rows: int) -> int:
    """The seed stands nowhere in what leaves; but the salt of the commitment was derived from it, under the key."""
    metadata = recipe.metadata
    (reference,) = metadata.inputs
    generator = recipe.path_of(reference, None)
    source = tensors_file.read(generator, kind="generator")
    for seed in dict.fromkeys([source.metadata.seed or 0, *recipe.seeds, 0]):
        context: dict[str, Any] = {
            "stage": "synthesize", "client": metadata.client, "params": dict(metadata.params), "seed": seed,
            "rows": list(range(rows)),
        }  # fmt: skip
        if commit(recipe.key, role="generator", kind="generator", sha256=source.sha256, context=context) == reference:
            return seed
    raise UnreplayableError("its seed is neither 0 nor that of a private file: give it by --seed")


def _encode(recipe: Recipe, out: Path) -> list[Path]:
    metadata = recipe.metadata
    params = ENCODINGS.from_mapping(metadata.params)
    model = recipe.input("model")
    if isinstance(params, SurrogateSet):
        from stages.encode_surrogate import encode_surrogate

        encode_surrogate(
            model, recipe.input("data"), out, params=params, previous=recipe.optional("previous"),
            device=recipe.device, force=True,
        )  # fmt: skip
        return [out]
    if isinstance(params, TofuEncoding):
        return _proxy(recipe, params, model, out)
    from stages.encode import encode

    encode(
        model, recipe.input("update", "state"), out, params=params, previous=recipe.optional("previous"),
        before=_before(recipe, params, model), force=True,
    )  # fmt: skip
    return [out]


def _proxy(recipe: Recipe, params: TofuEncoding, model: Path, out: Path) -> list[Path]:
    """What a proxy began from is not told: each earlier one of the client, the last first, or noise."""
    from stages.encode_proxy import encode_proxy

    made: list[Path] = []
    for number, previous in enumerate(_earlier_proxies(recipe, params)):
        made.append(out.with_name(f"{number}-{out.name}"))
        encode_proxy(
            model, recipe.input("update"), made[-1], params=params, previous=previous, device=recipe.device, force=True
        )
        if made[-1].read_bytes() == recipe.path.read_bytes():
            break
    return made


def _earlier_proxies(recipe: Recipe, params: TofuEncoding) -> Iterator[Path | None]:
    if params.init == "previous":
        now = recipe.metadata.round or 0
        earlier = [one for one in recipe.sent if one.metadata.kind == "proxy" and (one.metadata.round or 0) < now]
        last = max(earlier, key=lambda one: one.metadata.round or 0, default=None)
        if last is not None:
            yield last.path
    yield None


def _before(recipe: Recipe, params: Any, model: Path) -> Path | None:
    """For a mask of what moved: the model that this one was made from."""
    if params.sparsify != "top-k":
        return None
    metadata, _ = tensors_file.read_header(model, kind="model")
    named = [reference for reference in metadata.inputs if reference.role == "model"]
    return recipe.path_of(named[0], None) if named else None


def _seed(metadata: Metadata) -> int:
    if metadata.seed is None:
        raise UnreplayableError("its seed is not recorded")
    return metadata.seed
