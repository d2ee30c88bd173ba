"""The kinds of artifact: the file format, who may hold it, and which tensors it promises.

`custody` says where a file may be: private (stays on the client), outbound (client to server), server (stays
there), downlink (server to client), public.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Custody = Literal["private", "outbound", "server", "downlink", "public"]
CUSTODIES: tuple[Custody, ...] = ("private", "outbound", "server", "downlink", "public")

FLOATS = ("F32", "F16")


@dataclass(frozen=True, kw_only=True)
class TensorRule:
    """What a named tensor must look like. Equal letters in `dims` are equal sizes within one file."""

    dtypes: tuple[str, ...]
    dims: tuple[str, ...]
    optional: bool = False


@dataclass(frozen=True, kw_only=True)
class Kind:
    """`tensors` is None where the names are those of a model's parameters: then all are `weight_dtypes`."""

    name: str
    suffix: Literal[".safetensors", ".parquet"]
    custodies: tuple[Custody, ...]
    text: str
    tensors: Mapping[str, TensorRule] | None = None
    weight_dtypes: tuple[str, ...] = ("F32",)


_IMAGES = ("n", "c", "h", "w")

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            name="dataset",
            suffix=".parquet",
            custodies=CUSTODIES,
            text="labelled images",
        ),
        Kind(
            name="model",
            suffix=".safetensors",
            custodies=("private", "server", "downlink", "public"),
            text="the weights of a network",
            weight_dtypes=("F32", "I64"),
        ),
        Kind(
            name="generator",
            suffix=".safetensors",
            custodies=("private",),
            text="a generator trained on private data; it never leaves the client",
            weight_dtypes=("F32", "I64"),
        ),
        Kind(
            name="update",
            suffix=".safetensors",
            custodies=("private", "server"),
            text="the change of the weights, start minus end",
        ),
        Kind(
            name="message",
            suffix=".safetensors",
            custodies=("outbound",),
            text="a client's update on its way to the server",
            weight_dtypes=FLOATS,
        ),
        Kind(
            name="proxy",
            suffix=".safetensors",
            custodies=("outbound", "downlink"),
            text="an update encoded as images and soft labels (TOFU)",
            tensors={
                "images": TensorRule(dtypes=("F32", "F16", "U8"), dims=_IMAGES),
                "labels": TensorRule(dtypes=FLOATS, dims=("n", "classes")),
                "weights": TensorRule(dtypes=("F32",), dims=("n",)),
                "scales": TensorRule(dtypes=("F32",), dims=("layers",)),
            },
        ),
        Kind(
            name="surrogate",
            suffix=".safetensors",
            custodies=("outbound",),
            text="a small synthetic set that stands in for the client's data (FedLAP, FedDM)",
            tensors={
                "images": TensorRule(dtypes=("F32", "F16"), dims=_IMAGES),
                "labels": TensorRule(dtypes=("I64",), dims=("n",)),
                "radius": TensorRule(dtypes=("F32",), dims=(), optional=True),
                "norms": TensorRule(dtypes=("F32",), dims=("layers",), optional=True),
            },
        ),
        Kind(
            name="state",
            suffix=".safetensors",
            custodies=("private", "outbound", "server", "downlink"),
            text="control variates of a federated algorithm",
        ),
    )
}
