"""What a file may say of itself: the closed list of stages, methods and parameters behind each kind that leaves.

A parameter that its stage does not declare, or a value that the declaration refuses, could carry anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, get_args

from artifacts.digests import canonical_json
from artifacts.errors import InputError
from artifacts.kinds import DATASET_PARAMS
from artifacts.metadata import Metadata
from stages.hyperparameters import HyperParameters, PluginRecord
from stages.methods.params.encoding import DeltaEncoding
from stages.methods.params.synthesis import Labels, Sampler
from stages.models.file import SHAPE, network_params
from stages.plugins import records
from stages.registry import ENCODERS, GENERATORS, NETWORKS, RULES

# By stage that has no registry of its own: the kinds that it may send, and by which method.
_CLIENTS: dict[str, dict[str, tuple[str | None, ...]]] = {
    "sign": {"envelope": (None,)},
    "receipt": {"head": ("ask",)},
    "secagg": {
        "secagg-keys": ("keys",), "secagg-shares": ("shares",), "secagg-masked": ("mask",),
        "secagg-survivors": ("confirm",), "secagg-unmask": ("unmask",),
    },
}  # fmt: skip
_SERVER = {
    "shuffle": ("dataset",), "sign": ("envelope",), "receipt": ("receipt",),
    "secagg": ("secagg-keys", "secagg-shares", "secagg-survivors"),
}  # fmt: skip
_LIBRARIES = {"fedsynth", "torch", "numpy", "scipy", "pyarrow", "pillow", "diffusers", "cryptography"}
# PEP 440, normalised, with the builds of torch: a version that says more than a version is none.
_NUMBER = "(0|[1-9][0-9]{0,3})"
_VERSION = re.compile(
    rf"{_NUMBER}(\.{_NUMBER}){{0,3}}((a|b|rc){_NUMBER})?(\.post{_NUMBER})?(\.dev{_NUMBER})?"
    r"(\+(cpu|cu[0-9]{2,3}|rocm[0-9](\.[0-9]){0,2}|xpu))?"
)


def undeclared(metadata: Metadata) -> str | None:
    """What the metadata say that their stage does not declare, in words; None if nothing."""
    for name, version in metadata.versions.items():
        if name not in _LIBRARIES or not _VERSION.fullmatch(version):
            return f"its versions name {name!r}, which made no file of fedsynth"
    if metadata.arithmetic is not None and "torch" not in metadata.versions:
        return "it names a processor, but torch, whose results depend on that, did not make it"
    stage, method, kind = metadata.stage, metadata.method, metadata.kind
    if metadata.custody == "outbound":
        methods = _of_clients(stage, kind)
        if not methods:
            return f"no stage {stage!r} of a client makes a {kind}"
        if method not in methods:
            return f"a {kind} is made by {' or '.join(map(str, methods))}, not by {method!r}"
    elif kind not in _of_server(stage):
        return f"no stage {stage!r} of the server sends a {kind}"
    return _misspelt(stage, method, canonical_json(dict(metadata.params)), records())


def _of_clients(stage: str, kind: str) -> tuple[str | None, ...]:
    """The methods by which a client's stage makes a file of this kind."""
    if stage == "encode":
        makers = [declared for declared in ENCODERS.classes if declared.kind == kind]
        return tuple(word for declared in makers for word in ENCODERS.words_of(declared))
    if stage == "synthesize":
        return GENERATORS.words if kind == "dataset" else ()
    return _CLIENTS.get(stage, {}).get(kind, ())


def _of_server(stage: str) -> tuple[str, ...]:
    """The kinds that a stage of the server may send. An aggregated update is not among them: it stays there."""
    if stage == "encode":
        return tuple(declared.kind for declared in ENCODERS.classes if declared.by_server)
    if stage == "aggregate":
        return tuple(kind for declared in RULES.classes for kind in declared.writes if kind != "update")
    return _SERVER.get(stage, ())


def check_params(path: Path, metadata: Metadata) -> None:
    """Refuse a file from somebody else with parameters that its stage does not declare, before any is used."""
    if metadata.custody in ("outbound", "downlink"):
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
                _check_spelt(ENCODERS.from_mapping(params), params)
            case "synthesize":
                _check_synthesis(params)
            case "shuffle":
                _check_names(params, DATASET_PARAMS)
            case "secagg":
                # The rest is declared by the kinds, and read so: no file with other parameters is read at all.
                if params.get("encoding"):
                    _check_spelt(DeltaEncoding.from_mapping(params["encoding"]), params["encoding"])
            case "sign" | "receipt":
                _check_names(params, set())
            case "aggregate":
                network = network_params(params)
                own = {name: value for name, value in params.items() if name not in network}
                if own.get("rule") != method:
                    raise ValueError(f"its method is {method!r}, but its parameters are those of another")
                _check_spelt(RULES.from_mapping(own), own)
                known = set().union(*(declared.names() for declared in NETWORKS.classes))
                _check_names(network, set(SHAPE) | {f"net_{name}" for name in {*known, "plugin"}})
                if not all(isinstance(value, str | int | float | bool) for value in params.values()):
                    raise ValueError("a parameter is neither a word nor a number")
    except (ValueError, TypeError) as error:
        return f"its parameters are not those of {stage}: {error}"
    return None


def _check_spelt(declared: HyperParameters, params: Mapping[str, Any]) -> None:
    """Every parameter that has an effect, in the one spelling that the stage has for it: 1 is not 1.0."""
    spelt = declared.to_json()
    wrong = sorted(
        name
        for name in {*params, *spelt}
        if name not in spelt or name not in params or canonical_json(spelt[name]) != canonical_json(params[name])
    )
    if wrong:
        raise ValueError(f"{wrong[0]!r} is not as the stage spells it")


def _check_synthesis(params: Mapping[str, Any]) -> None:
    _check_names(params, DATASET_PARAMS | {"labels", "sampler", "sampling_steps", "picked"})
    if params.get("labels") not in get_args(Labels):
        raise ValueError(f"labels {params.get('labels')!r}")
    if "sampler" in params and params["sampler"] not in get_args(Sampler):
        raise ValueError(f"sampler {params['sampler']!r}")
    if type(params.get("sampling_steps", 1)) is not int or params.get("picked", True) is not True:
        raise ValueError("sampling_steps or picked")


def _check_names(params: Mapping[str, Any], allowed: set[str]) -> None:
    extra = sorted(params.keys() - allowed)
    if extra:
        raise ValueError(f"{extra[0]!r} is no parameter of it")
