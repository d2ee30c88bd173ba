"""What a file may say of itself: the closed list of stages, methods and parameters behind each kind that leaves.

A parameter that its stage does not declare, or a value that the declaration refuses, could carry anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, get_args

from artifacts.dataset_file import PARAMS as DATASET
from artifacts.digests import canonical_json
from artifacts.metadata import Metadata, MetadataError, check_client_name
from stages.hyperparameters import HyperParameters
from stages.methods.params.encoding import Encoding
from stages.methods.params.generator import GeneratorFamily
from stages.methods.params.synthesis import Labels, Sampler
from stages.methods.params.variants import AGGREGATIONS, ENCODINGS
from stages.nets.params import NetParams

# By stage: the kinds that it may send, and by which method.
_CLIENTS: dict[str, dict[str, tuple[str | None, ...]]] = {
    "encode": {"message": ("delta",), "state": ("state",), "surrogate": ("fedlap", "feddm"), "proxy": ("tofu",)},
    "synthesize": {"dataset": get_args(GeneratorFamily)},
    "sign": {"envelope": (None,)},
    "receipt": {"head": ("ask",)},
    "secagg": {
        "secagg-keys": ("keys",), "secagg-shares": ("shares",), "secagg-masked": ("mask",),
        "secagg-survivors": ("confirm",), "secagg-unmask": ("unmask",),
    },
}  # fmt: skip
_SERVER = {
    "aggregate": ("model", "state"), "encode": ("proxy",), "shuffle": ("dataset",), "sign": ("envelope",),
    "receipt": ("receipt",),
    "secagg": ("secagg-keys", "secagg-shares", "secagg-survivors"),
}  # fmt: skip
_SHAPE = {"channels", "height", "width", "num_classes"}
# Secure aggregation: who, by name, and how numbers are written.
_NAMES = {"senders", "receivers", "peers", "survivors", "dropped", "signers", "clients"}
_NUMBERS = {"step", "most", "threshold", "modulus", "range", "bits"}
_SIGNATURE = re.compile("[0-9a-f]{128}")
_LIBRARIES = {"fedsynth", "torch", "numpy", "scipy", "pyarrow", "pillow", "diffusers", "cryptography"}
_VERSION = re.compile(r"[0-9A-Za-z.+_-]{1,40}")


def undeclared(metadata: Metadata) -> str | None:
    """What the metadata say that their stage does not declare, in words; None if nothing."""
    for name, version in metadata.versions.items():
        if name not in _LIBRARIES or not _VERSION.fullmatch(version):
            return f"its versions name {name!r}, which made no file of fedsynth"
    text = canonical_json(dict(metadata.params))
    return _undeclared(metadata.custody, metadata.stage, metadata.method, metadata.kind, text)


@cache  # the files of a run have few different parameters
def _undeclared(custody: str, stage: str, method: str | None, kind: str, text: str) -> str | None:
    params = json.loads(text)
    if custody == "outbound":
        methods = _CLIENTS.get(stage, {}).get(kind)
        if methods is None:
            return f"no stage {stage!r} of a client makes a {kind}"
        if method not in methods:
            return f"a {kind} is made by {' or '.join(map(str, methods))}, not by {method!r}"
    elif kind not in _SERVER.get(stage, ()):
        return f"no stage {stage!r} of the server sends a {kind}"
    try:
        match stage:
            case "encode":
                if params.get("method") != method:
                    raise ValueError(f"its method is {method!r}, but its parameters are those of another")
                _check_spelt(ENCODINGS.from_mapping(params), params)
            case "synthesize":
                _check_synthesis(params)
            case "shuffle":
                _check_names(params, DATASET)
            case "secagg":
                _check_secagg(params)
            case "sign" | "receipt":
                _check_names(params, set())
            case "aggregate":
                known = set().union(*(declared.names() for declared in AGGREGATIONS.classes))
                _check_names(params, known | _SHAPE | {f"net_{name}" for name in NetParams.names()})
                if not all(isinstance(value, str | int | float | bool) for value in params.values()):
                    raise ValueError("a parameter is neither a word nor a number")
    except (ValueError, TypeError) as error:
        return f"its parameters are not those of {stage}: {error}"
    return None


def _check_spelt(declared: HyperParameters, params: Mapping[str, Any]) -> None:
    spelt = declared.to_json()
    wrong = sorted(name for name in params if name not in spelt or spelt[name] != params[name])
    if wrong:
        raise ValueError(f"{wrong[0]!r} is not as the stage spells it")


def _check_synthesis(params: Mapping[str, Any]) -> None:
    _check_names(params, DATASET | {"labels", "sampler", "sampling_steps", "picked"})
    if params.get("labels") not in get_args(Labels):
        raise ValueError(f"labels {params.get('labels')!r}")
    if "sampler" in params and params["sampler"] not in get_args(Sampler):
        raise ValueError(f"sampler {params['sampler']!r}")
    if type(params.get("sampling_steps", 1)) is not int or params.get("picked", True) is not True:
        raise ValueError("sampling_steps or picked")


def _check_secagg(params: Mapping[str, Any]) -> None:
    _check_names(params, _NAMES | _NUMBERS | {"encoding", "signature"})
    for name, value in params.items():
        if name in _NAMES and not (isinstance(value, list) and all(isinstance(v, str) and _is_name(v) for v in value)):
            raise ValueError(f"{name!r} is not a list of clients")
        if name in _NUMBERS and type(value) not in (int, float):
            raise ValueError(f"{name!r} is not a number")
    if not _SIGNATURE.fullmatch(str(params.get("signature", "0" * 128))):
        raise ValueError("'signature' is none")
    if params.get("encoding"):
        Encoding.from_mapping(params["encoding"])


def _is_name(text: str) -> bool:
    try:
        return bool(check_client_name(text))
    except MetadataError:
        return False


def _check_names(params: Mapping[str, Any], allowed: set[str]) -> None:
    extra = sorted(params.keys() - allowed)
    if extra:
        raise ValueError(f"{extra[0]!r} is no parameter of it")
