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
    """`tensors` is None where the names are those of a model's parameters: then all are `weight_dtypes`.

    `from_data` is False for what no private record can change a bit of, such as fresh keys: it costs no ε.
    """

    name: str
    suffix: Literal[".safetensors", ".parquet", ".jsonl"]
    custodies: tuple[Custody, ...]
    text: str
    tensors: Mapping[str, TensorRule] | None = None
    weight_dtypes: tuple[str, ...] = ("F32",)
    from_data: bool = True


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
            custodies=("private", "outbound"),
            text="a client's update on its way to the server; private, if it goes there under masks",
            weight_dtypes=FLOATS,
        ),
        Kind(
            name="proxy",
            suffix=".safetensors",
            custodies=("outbound", "downlink"),
            text="an update encoded as images and soft labels (TOFU): obscured, which is no guarantee of privacy",
            tensors={
                "images": TensorRule(dtypes=("F32", "F16", "U8"), dims=_IMAGES),
                "labels": TensorRule(dtypes=FLOATS, dims=("n", "classes")),
                "weights": TensorRule(dtypes=("F32",), dims=("n",)),
                "scales": TensorRule(dtypes=("F32",), dims=("layers",)),
                "range": TensorRule(dtypes=("F32",), dims=("ends",), optional=True),
                "averages": TensorRule(dtypes=("F32",), dims=("numbers",), optional=True),
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
        Kind(
            name="secagg-keys",
            suffix=".safetensors",
            custodies=("outbound", "downlink"),
            text="public keys of one round of secure aggregation, signed: a client's, or the list of all",
            tensors={
                "cipher_keys": TensorRule(dtypes=("U8",), dims=("clients", "key")),
                "mask_keys": TensorRule(dtypes=("U8",), dims=("clients", "key")),
                "signatures": TensorRule(dtypes=("U8",), dims=("clients", "signature")),
            },
            from_data=False,
        ),
        Kind(
            name="secagg-shares",
            suffix=".safetensors",
            custodies=("outbound", "downlink"),
            text="shares of mask secrets, each encrypted for the one client that may read it",
            tensors={
                "ciphertexts": TensorRule(dtypes=("U8",), dims=("senders", "receivers", "bytes")),
                "commitments": TensorRule(dtypes=("U8",), dims=("senders", "digest")),
            },
            from_data=False,
        ),
        Kind(
            name="secagg-masked",
            suffix=".safetensors",
            custodies=("outbound",),
            text="an update under masks, uniform to whoever sees it: only the sum of a round's can be uncovered",
            weight_dtypes=("I32", "I64"),
        ),
        Kind(
            name="secagg-survivors",
            suffix=".safetensors",
            custodies=("outbound", "downlink"),
            text="whose masked updates count in a round of secure aggregation, and who signed that list",
            tensors={"signatures": TensorRule(dtypes=("U8",), dims=("signers", "signature"))},
            from_data=False,
        ),
        Kind(
            name="secagg-unmask",
            suffix=".safetensors",
            custodies=("outbound",),
            text="what the sum of a round needs to be uncovered: of each client one kind of share, never both",
            tensors={
                "mask_keys": TensorRule(dtypes=("U8",), dims=("dropped", "share")),
                "seeds": TensorRule(dtypes=("U8",), dims=("survivors", "share")),
            },
            from_data=False,
        ),
        Kind(
            name="envelope",
            suffix=".jsonl",
            custodies=("outbound", "downlink", "public"),
            text="signed statements on a file: how it was made, and what it claims about privacy",
            from_data=False,
        ),
        Kind(
            name="head",
            suffix=".jsonl",
            custodies=("outbound",),
            text="the digest of a client's ledger at one moment, signed, for the server to countersign",
            from_data=False,
        ),
        Kind(
            name="receipt",
            suffix=".jsonl",
            custodies=("downlink",),
            text="heads of clients' ledgers, countersigned by the server: those ledgers cannot be rewritten any more",
            from_data=False,
        ),
    )
}
