"""What a file may say of itself: the closed list of stages, methods and parameters behind each kind that leaves.

A parameter that its stage does not declare, or a value that the declaration refuses, could carry anything.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from artifacts.digests import canonical_json
from artifacts.errors import InputError
from artifacts.kinds import DATASET_PARAMS
from artifacts.metadata import Metadata
from stages.catalogue import COMMANDS
from stages.families import stated
from stages.hyperparameters import PluginRecord
from stages.methods.params.client_privacy import NEXT_CLIP
from stages.methods.params.synthesis import Synthesis
from stages.nets.params import SHAPE, network_params
from stages.plugins import missing, records, refuse_missing
from stages.registry import ENCODERS, GENERATORS, NETWORKS, RULES

_LIBRARIES = {"fedsynth", "torch", "numpy", "scipy", "pyarrow", "pillow", "diffusers", "cryptography"}
# Parameters that make a file state a count.
_COUNTS = {"tell_examples": "num_examples", "tell_steps": "local_steps"}
# PEP 440, normalised, with the builds of torch: a version that says more than a version is none.
_NUMBER = "(0|[1-9][0-9]{0,3})"
_VERSION = re.compile(
    rf"{_NUMBER}(\.{_NUMBER}){{0,3}}((a|b|rc){_NUMBER})?(\.post{_NUMBER})?(\.dev{_NUMBER})?"
    r"(\+(cpu|cu[0-9]{2,3}|rocm[0-9](\.[0-9]){0,2}|xpu))?"
)


def undeclared(metadata: Metadata) -> str | None:
    """What the metadata say that their stage does not declare, in words; None if nothing.

    Nothing is known of what a plug-in declares that is not loaded: `stages.plugins.missing` says so.
    """
    for name, version in metadata.versions.items():
        if name not in _LIBRARIES or not _VERSION.fullmatch(version):
            return f"its versions name {name!r}, which made no file of fedsynth"
    if metadata.arithmetic is not None and "torch" not in metadata.versions:
        return "it names a processor, but torch, whose results depend on that, did not make it"
    if metadata.arithmetic is None and "torch" in metadata.versions:
        return "torch made it, but it does not name the processor that its results depend on"
    if missing(metadata.params) is not None:
        return None
    stage, method, kind, plugins = metadata.stage, metadata.method, metadata.kind, records()
    if metadata.custody == "outbound":
        methods = _methods(stage, kind, plugins)
        if not methods:
            return f"no stage {stage!r} of a client makes a {kind}"
        if method not in methods:
            return f"a {kind} is made by {' or '.join(map(str, methods))}, not by {method!r}"
    elif kind not in _of_server(stage):
        return f"no stage {stage!r} of the server sends a {kind}"
    if (made := _libraries(metadata)) and set(metadata.versions) != made:
        return f"it names the versions of {', '.join(metadata.versions)}, where {', '.join(sorted(made))} made it"
    counted = {count for name, count in _COUNTS.items() if metadata.params.get(name) is True}
    if set(metadata.counts) != counted:
        return f"it counts {', '.join(metadata.counts) or 'nothing'}, where its parameters tell {sorted(counted)}"
    roles = [reference.role for reference in metadata.inputs]
    if (named := _named_inputs(metadata)) is not None and not _fit(roles, named):
        return f"it was made from {', '.join(roles) or 'nothing'}, where a {kind} names {', '.join(named) or 'nothing'}"
    return _misspelt(stage, method, canonical_json(dict(metadata.params)), plugins)


@lru_cache  # an audit asks for every file
def _methods(stage: str, kind: str, _plugins: tuple[str, ...]) -> tuple[str | None, ...]:
    return _of_clients(stage, kind)


def _of_clients(stage: str, kind: str) -> tuple[str | None, ...]:
    """The methods by which a client's stage makes a file of this kind."""
    if stage == "encode":
        makers = [declared for declared in ENCODERS.classes if declared.kind == kind]
        return tuple(word for declared in makers for word in ENCODERS.words_of(declared))
    commands = [command for command in COMMANDS.values() if command.stage == stage and kind in command.client_sends]
    return GENERATORS.words if commands and stage == "synthesize" else tuple(command.method for command in commands)


def _of_server(stage: str) -> tuple[str, ...]:
    """The kinds that a stage of the server may send. An aggregated update is not among them: it stays there."""
    if stage == "encode":
        return tuple(declared.kind for declared in ENCODERS.classes if declared.by_server)
    if stage == "aggregate":
        return tuple(kind for declared in RULES.classes for kind in declared.writes if kind != "update")
    return tuple(kind for command in COMMANDS.values() if command.stage == stage for kind in command.server_sends)


def _libraries(metadata: Metadata) -> set[str]:
    """Those that make a client's file which no replay gives again; none where a replay says it."""
    command = COMMANDS.get(f"{metadata.stage} {metadata.method}")
    fresh = command is not None and metadata.custody == "outbound" and command.libraries
    return {"fedsynth", *fresh} if fresh else set()


def _named_inputs(metadata: Metadata) -> tuple[str, ...] | None:
    """The roles of the inputs that a file names; None for the server's lists of a round, which are held to that."""
    stage, method = metadata.stage, metadata.method
    if stage == "encode":
        encoder = ENCODERS.chosen({"method": method})
        if metadata.custody == "downlink":
            return ("model",)  # what goes down does not say who took part
        previous = "previous" in encoder.takes and encoder.names_previous
        return ("model", "|".join(encoder.reads), *(["previous|"] if previous else []))
    if stage == "secagg" and metadata.custody == "downlink":
        return None
    command = COMMANDS.get(f"{stage} {method}") or COMMANDS.get(stage)
    return command.names if command is not None else None


def _fit(roles: Sequence[str], named: Sequence[str]) -> bool:
    """`a|b` is one of the two; `a|` may be left out."""
    left = list(roles)
    for one in named:
        if left and left[0] in one.split("|"):
            left.pop(0)
        elif not one.endswith("|"):
            return False
    return not left


def check_params(path: Path, metadata: Metadata) -> None:
    """Refuse a file from somebody else with parameters that its stage does not declare, before any is used."""
    if metadata.travels:
        refuse_missing(path, metadata.params)
        wrong = _misspelt(metadata.stage, metadata.method, canonical_json(dict(metadata.params)), records())
        if wrong is not None:
            raise InputError(f"{path}: {wrong}. Leave it out.")


@cache  # the files of a run have few different parameters
def _misspelt(stage: str, method: str | None, text: str, _plugins: tuple[str, ...]) -> str | None:
    params = json.loads(text)
    try:
        for name in ("plugin", "net_plugin"):
            if name in params:
                PluginRecord.parse(params[name])
        match stage:
            case "encode":
                if params.get("method") != method:
                    raise ValueError(f"its method is {method!r}, but its parameters are those of another")
                stated(ENCODERS, params)
            case "synthesize":
                _check_synthesis(params, method)
            case "shuffle":
                _check_names(params, DATASET_PARAMS)
            case "secagg":
                # The rest is declared by the kinds, and read so: no file with other parameters is read at all.
                if params.get("encoding"):
                    made = stated(ENCODERS, params["encoding"])
                    if not made.additive:
                        raise ValueError(f"files of {made.method} do not add up")
            case "sign" | "receipt":
                _check_names(params, set())
            case "aggregate":
                network = network_params(params)
                own = {name: value for name, value in params.items() if name not in network}
                after = own.pop(NEXT_CLIP, None)
                if own.get("rule") != method:
                    raise ValueError(f"its method is {method!r}, but its parameters are those of another")
                rule = stated(RULES, own)
                if getattr(rule, "adaptive_clip", False) != _is_clip(after):
                    raise ValueError(f"{NEXT_CLIP!r} is a number above 0 where the clip is adapted, and only there")
                known = set().union(*(declared.names() for declared in NETWORKS.classes))
                _check_names(network, set(SHAPE) | {f"net_{name}" for name in {*known, "plugin"}})
                if not all(isinstance(value, str | int | float | bool) for value in params.values()):
                    raise ValueError("a parameter is neither a word nor a number")
    except (ValueError, TypeError) as error:
        return f"its parameters are not those of {stage}: {error}"
    return None


def _check_synthesis(params: Mapping[str, Any], family: str | None) -> None:
    _check_names(params, DATASET_PARAMS | {"labels", "sampler", "sampling_steps", "picked"})
    if params.get("picked", True) is not True:
        raise ValueError("'picked' is neither true nor absent")
    # How many images of which classes there are, the rows themselves say.
    own = {name: value for name, value in params.items() if name in Synthesis.names()}
    rows = {"label_list": "0"} if own.get("labels") == "given" else {"count": 1}
    stated(Synthesis, own | rows, {"family": family})


def _is_clip(value: Any) -> bool:
    return type(value) is float and 0 < value < math.inf


def _check_names(params: Mapping[str, Any], allowed: set[str]) -> None:
    extra = sorted(params.keys() - allowed)
    if extra:
        raise ValueError(f"{extra[0]!r} is no parameter of it")
