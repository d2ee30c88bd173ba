"""The server's stages again: what it sent is made from what clients sent, and from what it kept of earlier rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from artifacts.digests import sha256_file
from artifacts.metadata import InputRef, Metadata
from artifacts.places import Place
from stages.audit.recompute import Held, Remaking, UnreplayableError, model_before
from stages.methods.params.aggregation import Rule
from stages.nets.params import network_params
from stages.registry import RULES
from stages.secagg.terms import SecaggTerms

# Of each step of secure aggregation: the kind of the clients' files, and the parameter of the list that names them.
_COLLECTED = {
    "keys": ("secagg-keys", "clients"),
    "shares": ("secagg-shares", "senders"),
    "mask": ("secagg-masked", "survivors"),
    "confirm": ("secagg-survivors", "signers"),
}


def made_from(
    path: Path, metadata: Metadata, records: Mapping[str, Sequence[InputRef]], own: Sequence[Held]
) -> Iterator[InputRef]:
    """The inputs of a file: those that it names, and those that a server records for itself alone (`records`)."""
    yield from metadata.inputs
    if metadata.custody == "downlink" and path.stem in records:
        yield from records[path.stem]
    elif metadata.custody == "server" and metadata.kind == "state":
        # Kept along with a model, which has the record.
        model = _first(own, kind="model", stage="aggregate", method=metadata.method, round=metadata.round)
        yield from records.get(model.path.stem, ()) if model is not None else ()
    elif metadata.custody == "downlink" and metadata.stage == "encode":
        update = _first(own, kind="update", custody="server", round=metadata.round)
        yield from [InputRef(role="update", kind="update", sha256=update.sha256)] if update is not None else []


def aggregate_again(recipe: Remaking, out: Path) -> list[Path]:
    from stages.aggregate import aggregate

    metadata = recipe.metadata
    network = network_params(metadata.params)
    params: Rule = RULES.from_mapping({name: value for name, value in metadata.params.items() if name not in network})
    model = recipe.input("model")
    files = recipe.inputs(*{reference.role for reference in recipe.made_from} - {"model"})
    if not files and not params.noised:
        raise UnreplayableError("what it was made from beside the model is recorded nowhere")
    if params.noised and recipe.key is None:
        raise UnreplayableError("its noise is made with the server's key, which is not here")
    options: dict[str, Any] = {}
    made = [out]
    if "state_out" in params.takes:  # the model leaves, the state stays; either may be asked for
        place = Place(out.parent.parent)
        made = [place.outbox / f"{out.stem}.safetensors", place.private / f"{out.stem}.state.safetensors"]
        options["state_out"] = made[1]
    if "state" in params.takes:
        wanted = {"kind": "state", "stage": "aggregate", "method": metadata.method}
        before = _first(recipe.own, **wanted, round=(metadata.round or 0) - 1)
        options["state"] = before.path if before is not None else None
    if "before" in params.takes:
        options["before"] = model_before(recipe, params, model)
    if len(params.writes) > 1:
        options["result"] = metadata.kind

    def compute(seed: int | None = None) -> list[Path]:
        aggregate(model, files, made[0], params=params, device=recipe.device, seed=seed, force=True, **options)
        return made if metadata.kind != "state" else made[::-1]

    return _with_some_seed(recipe, compute) if "seed" in params.takes else compute()


def shuffle_again(recipe: Remaking, out: Path) -> list[Path]:
    from stages.shuffle import shuffle

    datasets = recipe.inputs("dataset")
    if not datasets:
        raise UnreplayableError("which datasets it was mixed from is recorded nowhere")
    alike = ("shuffle", recipe.metadata.round)
    parts = sum((one.metadata.stage, one.metadata.round) == alike for one in recipe.sent)

    def compute(seed: int) -> list[Path]:
        shuffle(datasets, out.parent, parts=parts, seed=seed, force=True)
        return [out]

    if out.exists() and sha256_file(out) == sha256_file(recipe.path):
        return [out]  # made along with another part
    return _with_some_seed(recipe, compute)


def _with_some_seed(recipe: Remaking, compute: Callable[[int], list[Path]]) -> list[Path]:
    """With a seed that is known, or 0: no file that goes down says it."""
    wanted = sha256_file(recipe.path)
    made: list[Path] = []
    for seed in dict.fromkeys([*recipe.seeds, 0]):
        made = compute(seed)
        if sha256_file(made[0]) == wanted:
            return made
    if not recipe.seeds:
        before = sha256_file(made[0])
        if sha256_file(compute(1)[0]) != before:  # else the seed has no effect, and is not at fault
            raise UnreplayableError("its seed is not 0, and recorded nowhere here: give it by --seed")
    return made


def decode_again(recipe: Remaking, out: Path) -> list[Path]:
    from stages.decode import decode

    others = [reference.role for reference in recipe.made_from if reference.role != "model"]
    decode(recipe.input("model"), recipe.input(*others), out, apply=recipe.metadata.kind == "model", force=True)
    return [out]


def secure_sum_again(recipe: Remaking, out: Path) -> list[Path]:
    """From the masked updates and the answers: shares, keys and commitments fit one another, or it is refused."""
    from stages.secagg.total import secure_sum

    secure_sum(
        recipe.inputs("masked", "unmask"), out, roster=_roster(recipe), keys=_listed(recipe, "keys"),
        shares=_listed(recipe, "shares"), survivors=_listed(recipe, "confirm"), result=recipe.metadata.params["of"],
        force=True,
    )  # fmt: skip
    return [out]


def collect_again(recipe: Remaking, out: Path) -> list[Path]:
    """One of the server's lists, from the files of the clients that it names."""
    from stages.secagg.collect import collect

    step, params = str(recipe.metadata.method), recipe.metadata.params
    kind, naming = _COLLECTED[step]
    files = []
    if step == "shares" and out.exists() and sha256_file(out) == sha256_file(recipe.path):
        return [out]  # made along with those of other readers
    for name in params.get("present", params[naming]):
        sent = _first(recipe.received, kind=kind, client=name, round=recipe.metadata.round)
        if sent is None:
            raise UnreplayableError(f"the {kind} of {name} is not at hand")
        files.append(sent.path)
    given: dict[str, Any] = {"keys": _listed(recipe, "keys")}
    if step == "keys":
        stated = {name: params[name] for name in SecaggTerms.names() & params.keys()}
        given = {"params": SecaggTerms.from_mapping(stated | ({"graph": "sparse"} if "neighbours" in params else {}))}
    elif step == "shares" and len(params["receivers"]) == 1:
        reader = params["receivers"][0]
        given["receiver"] = reader
        whole = out.with_name(out.name.replace(f"-for-{reader}-", "-", 1))
        if whole != out:  # in one pass for all readers
            given.pop("receiver")
            collect(files, whole, roster=_roster(recipe), each=True, force=True, **given)
            return [out]
    elif step == "shares" and not params["receivers"]:
        given["each"] = True
    collect(files, out, roster=_roster(recipe), force=True, **given)
    return [out]


def _listed(recipe: Remaking, step: str) -> Path:
    whole = [one for one in recipe.own if len(one.metadata.params.get("receivers", ())) != 1]  # not for one reader
    found = _first(whole, stage="secagg", custody="downlink", method=step, round=recipe.metadata.round)
    if found is None:
        raise UnreplayableError(f"the server's list of the step {step!r} is not at hand")
    return found.path


def _roster(recipe: Remaking) -> Path:
    if recipe.roster is None:
        raise UnreplayableError("the roster, by which its signatures are checked, is not at hand")
    return recipe.roster


def _first(files: Sequence[Held], **wanted: Any) -> Held | None:
    """The first file whose metadata say so."""
    return next((f for f in files if all(getattr(f.metadata, name) == value for name, value in wanted.items())), None)
