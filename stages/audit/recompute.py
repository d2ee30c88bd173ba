"""Which stage made a file, and with which arguments it makes it again. The stages import torch, this does not."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from artifacts.formats import dataset_file, tensors_file
from artifacts.identity.commitments import commit
from artifacts.identity.keys import Key
from artifacts.metadata import InputRef, Metadata
from artifacts.places import OUTBOX
from stages.audit.outbound import Seen
from stages.catalogue import COMMANDS
from stages.execution.dispatch import named
from stages.methods.params.encoding import Encoder
from stages.methods.params.synthesis import Synthesis
from stages.registry import ALGORITHMS, ENCODERS

if TYPE_CHECKING:
    from stages.execution.torch_setup import Device


class UnreplayableError(Exception):
    """Something that the computation needs is not there, or never was a computation."""


class Held(Protocol):
    """A file that somebody has."""

    @property
    def path(self) -> Path: ...

    @property
    def sha256(self) -> str: ...

    @property
    def metadata(self) -> Metadata: ...


@dataclass(frozen=True)
class Remaking:
    """A file to be made again: what it says of itself, and where its inputs are.

    `made_from` are the inputs that it names and, for the server's files, those that the server alone recorded. `own` is
    what its maker sent and kept, `received` what clients sent to the server.
    """

    path: Path
    metadata: Metadata
    path_of: Callable[[InputRef, int | None], Path]
    key: Key | None
    seeds: Sequence[int]
    sent: Sequence[Seen]
    device: Device
    made_from: Sequence[InputRef]
    own: Sequence[Held]
    received: Sequence[Held]
    roster: Path | None

    def inputs(self, *roles: str) -> list[Path]:
        return [self.path_of(r, self.metadata.round) for r in self.made_from if r.role in roles]

    def input(self, *roles: str) -> Path:
        found = list(itertools.chain.from_iterable(self.inputs(role) for role in roles))
        if not found:
            raise UnreplayableError(f"it names no {' or '.join(roles)}")
        return found[0]

    def optional(self, role: str) -> Path | None:
        return next(iter(self.inputs(role)), None)


# Makes the file at a path, and what else belongs to it: the file itself is one of those that come back.
Make = Callable[[Path], list[Path]]


def recipe_for(recipe: Remaking) -> Make:
    remaker = remaker_of(recipe.metadata)
    if remaker is None:
        raise UnreplayableError(f"nothing is known of how {recipe.metadata.stage} computes")
    again: Callable[[Remaking, Path], list[Path]] = named(remaker)
    return lambda out: again(recipe, out)


def remaker_of(metadata: Metadata) -> str | None:
    """What makes a file again; None if it was not computed, as data that a client brought."""
    name = f"{metadata.stage} {metadata.method}"
    if metadata.stage == "secagg" and metadata.custody == "downlink":
        name = "secagg collect"  # whose lists name the step that they are of
    command = COMMANDS.get(name) or COMMANDS.get(metadata.stage)
    return command.made_again_by if command is not None else None


def train_client_again(recipe: Remaking, out: Path) -> list[Path]:
    from stages.train_client import train_client

    metadata = recipe.metadata
    params = ALGORITHMS.from_mapping(metadata.params)
    # Update and state come out of one training, and each is asked for by its own name.
    update, state = out.with_name(f"{out.stem}.update.safetensors"), out.with_name(f"{out.stem}.state.safetensors")
    keeps = params.keeps_state
    train_client(
        recipe.input("model"), recipe.inputs("data"), update, params=params, seed=_seed(metadata),
        state=recipe.optional("state"), server_state=recipe.optional("server-state"),
        state_out=state if keeps else None, device=recipe.device, force=True,
    )  # fmt: skip
    found = [update, *([state] if keeps else [])]
    return found if metadata.kind == "update" else found[::-1]


def train_generator_again(recipe: Remaking, out: Path) -> list[Path]:
    from stages.generators.file import described
    from stages.train_generator import train_generator

    params, _, _ = described(recipe.metadata, recipe.path)
    train_generator(
        recipe.inputs("data"), out, params=params, seed=_seed(recipe.metadata), device=recipe.device,
        checkpoint_every=0, force=True,
    )  # fmt: skip
    return [out]


def synthesize_again(recipe: Remaking, out: Path) -> list[Path]:
    from stages.generators.file import facts_in
    from stages.synthesize import synthesize

    metadata = recipe.metadata
    about = metadata.params
    if about.get("picked"):
        raise UnreplayableError("someone picked it over: which images were left out is recorded nowhere")
    labels = dataset_file.read(recipe.path).labels
    given = about["labels"] == "given"
    generator = recipe.input("generator")
    wanted: dict[str, Any] = {"labels": about["labels"]}
    wanted |= {name: about[name] for name in ("sampler", "sampling_steps") if name in about}
    wanted |= {"label_list": ",".join(map(str, labels.tolist()))} if given else {"count": len(labels)}
    params = Synthesis.from_mapping(wanted, facts_in(generator))
    seed = metadata.seed if metadata.seed is not None else _seed_of_images(recipe, len(labels))
    synthesize(generator, out, params=params, seed=seed, device=recipe.device, force=True)
    return [out]


def _seed_of_images(recipe: Remaking, rows: int) -> int:
    """The seed is nowhere in what leaves; but the salt of the commitment was derived from it, under the key."""
    assert recipe.key is not None  # a client's files are not made again without it
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


def encode_again(recipe: Remaking, out: Path) -> list[Path]:
    from stages.encode import encode

    params = ENCODERS.from_mapping(recipe.metadata.params)
    model, source = recipe.input("model"), recipe.input(*params.reads)
    before = model_before(recipe, params, model) if "before" in params.takes else None
    if recipe.metadata.kind != params.kind:
        # What a lossy message left out is made along with the message.
        message = out.parent.parent / OUTBOX / out.name
        previous = recipe.optional("previous")
        encode(model, source, message, params=params, previous=previous, error_out=out, force=True)
        return [out]
    made: list[Path] = []
    for number, previous in enumerate(_earlier(recipe, params)):
        made.append(out.with_name(f"{number}-{out.name}") if number else out)
        encode(
            model, source, made[-1], params=params, previous=previous, before=before, device=recipe.device, force=True
        )
        if made[-1].read_bytes() == recipe.path.read_bytes():
            break
    return made


def _earlier(recipe: Remaking, params: Encoder) -> Iterator[Path | None]:
    """What the file may have begun from: what it names, or else the client's last one of its kind, or nothing."""
    if params.names_previous:
        yield recipe.optional("previous")
        return
    if getattr(params, "init", None) == "previous":
        now = recipe.metadata.round or 0
        earlier = [one for one in recipe.sent if one.metadata.kind == params.kind and (one.metadata.round or 0) < now]
        last = max(earlier, key=lambda one: one.metadata.round or 0, default=None)
        if last is not None:
            yield last.path
    yield None


def model_before(recipe: Remaking, params: Any, model: Path) -> Path | None:
    """For a mask of what moved: the model that this one was made from."""
    if not params.follows_movement:
        return None
    metadata, _ = tensors_file.read_header(model, kind="model")
    named = metadata.inputs_as("model")
    return recipe.path_of(named[0], None) if named else None


def _seed(metadata: Metadata) -> int:
    if metadata.seed is None:
        raise UnreplayableError("its seed is not recorded")
    return metadata.seed
