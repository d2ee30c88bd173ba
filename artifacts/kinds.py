"""The kinds of artifact: the file format, who may hold it, and which tensors it promises.

`custody` says where a file may be: private (stays on the client), outbound (client to server), server (stays
there), downlink (server to client), public.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from artifacts.disclosures import COUNTS
from artifacts.fields import Clients, Field, Hex, Parameters, Positive, WholeNumber
from artifacts.formats import Format

Custody = Literal["private", "outbound", "server", "downlink", "public"]
CUSTODIES: tuple[Custody, ...] = ("private", "outbound", "server", "downlink", "public")
TRAVEL: tuple[Custody, ...] = ("outbound", "downlink")

# What the parameters of every dataset state.
DATASET_PARAMS = {"num_classes", "channels", "height", "width", "class_names"}


@dataclass(frozen=True)
class Listed:
    """A size: as many as the parameter of this name lists. A client's own file that has no such list has one."""

    param: str

    def __str__(self) -> str:
        return f"one of each of its {self.param}"


@dataclass(frozen=True, kw_only=True)
class TensorRule:
    """What a named tensor must look like. Equal words in `dims` are equal sizes within one file; a number is a size.

    `discloses` names what the tensor discloses about private data wherever it is sent, noise or not.
    """

    dtypes: tuple[str, ...]
    dims: tuple[str | int | Listed, ...]
    optional: bool = False
    discloses: str | None = None


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of file, and everything that other modules have to know about it.

    `text` says what it is, `note` what a reader of one should keep in mind. `tensors` is None where the names are
    those of a model's parameters: then all are `weight_dtypes`, and `partial` says that some may be missing.
    `from_data` is False for what no private record can change a bit of, such as fresh keys: it costs no ε.
    `always_discloses` is what a file of this kind discloses when no noise covers it, whatever its parameters.
    `passes_events` means that what is made from it has its privacy events; `is_release`, that its tensors, or those
    of the update behind it, are the very numbers that a mechanism gave out. `carries` is what a server averages
    such files as; `encoded` means that it must be decoded first; `linear`, that what it is decoded by is public and
    linear, so that files add up. `handed_on` means that each round passes it to the next. `pictures` says how its
    images are shown: as bytes, clipped to −1 … 1, or stretched. `params` declares what its parameters may be; None
    where the stage that makes it declares them. A kind that is made from no data is computed again by nobody: it
    must declare its parameters, and every size of its tensors (`is_bounded`).
    """

    name: str
    format: Format
    custodies: tuple[Custody, ...]
    text: str
    note: str | None = None
    tensors: Mapping[str, TensorRule] | None = None
    weight_dtypes: tuple[str, ...] = ("F32",)
    partial: bool = False
    from_data: bool = True
    always_discloses: frozenset[str] = frozenset()
    passes_events: bool = False
    is_release: bool = False
    carries: Literal["update", "state"] | None = None
    encoded: bool = False
    linear: bool = False
    handed_on: bool = False
    pictures: Literal["bytes", "clipped", "stretched"] | None = None
    params: Mapping[str, Field] | None = None

    def __post_init__(self) -> None:
        if self.is_fresh and not self.is_bounded:
            raise ValueError(f"a {self.name} comes from no data: it must declare its parameters and exact sizes")

    @property
    def is_bounded(self) -> bool:
        """Whether its parameters say how many bytes a file of it holds: no tensor has room for more than it needs."""
        dims = [dim for rule in (self.tensors or {}).values() for dim in rule.dims]
        return self.params is not None and self.tensors is not None and not any(isinstance(dim, str) for dim in dims)

    @property
    def leaves(self) -> bool:
        """Whether a client may send it."""
        return "outbound" in self.custodies

    @property
    def travels(self) -> bool:
        """Whether it goes from a client to the server or back."""
        return not set(TRAVEL).isdisjoint(self.custodies)

    @property
    def adds_up(self) -> bool:
        """Whether the sum of such files is the sum of the updates in them."""
        return self.carries == "update" and (self.linear or not self.encoded)

    @property
    def disclosed_beside(self) -> frozenset[str]:
        """What numbers beside its main content disclose; nothing that is made of the file says it again."""
        beside = (rule.discloses for rule in (self.tensors or {}).values())
        return COUNTS | {name for name in beside if name is not None}

    @property
    def is_signed(self) -> bool:
        """Whether it is a signed statement on other files; nothing is computed from it."""
        return self.format is Format.ENVELOPES

    @property
    def is_fresh(self) -> bool:
        """Whether it comes from the operating system's random numbers, so that no replay can give it again."""
        return not self.from_data and not self.is_signed

    @property
    def holds_weights(self) -> bool:
        """Whether its tensors are those of a model."""
        return self.format is Format.TENSORS and self.tensors is None


_IMAGES = ("n", "c", "h", "w")

# Secure aggregation: X25519 keys, Ed25519 signatures, SHA-256, shares of Shamir's, and two shares as ChaCha20-Poly1305
# seals them. `stages.secagg` has the same sizes from its own arithmetic, and a test holds the two together.
_KEY, _SIGNATURE, _DIGEST, _SHARE, _SEALED = 32, 64, 32, 66, 160
_SIGNED = Hex(bytes=_SIGNATURE, custody="outbound")
_LIST = "downlink"

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            name="dataset",
            format=Format.DATASET,
            custodies=CUSTODIES,
            text="labelled images",
            always_discloses=frozenset({"derived_images", "class_set"}),
            pictures="bytes",
        ),
        Kind(
            name="model",
            format=Format.TENSORS,
            custodies=("private", "server", "downlink", "public"),
            text="the weights of a network",
            weight_dtypes=("F32", "I64"),
            handed_on=True,
        ),
        Kind(
            name="generator",
            format=Format.TENSORS,
            custodies=("private",),
            text="a generator trained on private data; it never leaves the client",
            note="It can make images like the private ones. It never leaves the client.",
            weight_dtypes=("F32", "I64"),
            passes_events=True,
        ),
        Kind(
            name="message",
            format=Format.TENSORS,
            custodies=("private", "outbound"),
            text="a client's update on its way to the server; private, if it goes there under masks",
            always_discloses=frozenset({"update"}),
            carries="update",
            passes_events=True,
            is_release=True,
        ),
        Kind(
            name="update",
            format=Format.TENSORS,
            custodies=("private", "server"),
            text="the change of the weights, start minus end",
            carries="update",
            passes_events=True,
        ),
        Kind(
            name="surrogate",
            format=Format.TENSORS,
            custodies=("outbound",),
            text="a small synthetic set that stands in for the client's data (FedLAP, FedDM)",
            note="Images that were optimised to replace private data in training; where no noise is named, they can "
            "resemble it.",
            always_discloses=frozenset({"derived_images", "class_set"}),
            handed_on=True,
            pictures="clipped",
            tensors={
                "images": TensorRule(dtypes=("F32",), dims=_IMAGES),
                "labels": TensorRule(dtypes=("I64",), dims=("n",)),
                "radius": TensorRule(dtypes=("F32",), dims=(), optional=True, discloses="radius"),
                "norms": TensorRule(dtypes=("F32",), dims=("layers",), optional=True, discloses="layer_norms"),
            },
            is_release=True,
        ),
        Kind(
            name="proxy",
            format=Format.TENSORS,
            custodies=("outbound", "downlink"),
            text="an update encoded as the gradient of a few images (TOFU): obscured, which is no guarantee of privacy",
            note="The gradient of a few images encodes an update. That obscures it and is no guarantee of privacy: "
            "anyone with the model decodes it. How large the update is in each layer can be read from it exactly.",
            always_discloses=frozenset({"update", "derived_images", "layer_norms"}),
            carries="update",
            encoded=True,
            handed_on=True,
            pictures="stretched",
            tensors={
                "images": TensorRule(dtypes=("F32", "F16", "U8"), dims=_IMAGES),
                "residuals": TensorRule(dtypes=("F32",), dims=("n", "classes")),
                "scales": TensorRule(dtypes=("F32",), dims=("layers",)),
                "range": TensorRule(dtypes=("F32",), dims=("ends",), optional=True),
                "averages": TensorRule(dtypes=("F32",), dims=("numbers",), optional=True),
            },
        ),
        Kind(
            name="residuals",
            format=Format.TENSORS,
            custodies=("private", "outbound", "server"),
            text="an update as what labels of public images amount to (TOFU); nothing is hidden",
            always_discloses=frozenset({"update"}),
            carries="update",
            encoded=True,
            linear=True,
            tensors={
                "residuals": TensorRule(dtypes=("F32",), dims=("n", "classes")),
                "averages": TensorRule(dtypes=("F32",), dims=("numbers",), optional=True),
            },
        ),
        Kind(
            name="compressed",
            format=Format.TENSORS,
            custodies=("outbound",),
            text="a client's update in fewer bytes: quantised, its largest numbers, or thin factors; nothing is hidden",
            always_discloses=frozenset({"update"}),
            carries="update",
            encoded=True,
            tensors={
                "codes": TensorRule(dtypes=("U8",), dims=("bytes",), optional=True),
                "positions": TensorRule(dtypes=("I32",), dims=("kept",), optional=True),
                "values": TensorRule(dtypes=("F16",), dims=("kept",), optional=True),
                "ranges": TensorRule(dtypes=("F32",), dims=("ranges",), optional=True),
                "factors": TensorRule(dtypes=("F32",), dims=("numbers",), optional=True),
            },
        ),
        Kind(
            name="state",
            format=Format.TENSORS,
            custodies=("private", "outbound", "server", "downlink"),
            text="control variates of a federated algorithm",
            partial=True,
            always_discloses=frozenset({"update", "local_steps"}),
            carries="state",
            handed_on=True,
            passes_events=True,
            is_release=True,
        ),
        Kind(
            name="secagg-keys",
            format=Format.TENSORS,
            custodies=("outbound", "downlink"),
            text="public keys of one round of secure aggregation, signed: a client's, or the list of all",
            tensors={
                "cipher_keys": TensorRule(dtypes=("U8",), dims=(Listed("clients"), _KEY)),
                "mask_keys": TensorRule(dtypes=("U8",), dims=(Listed("clients"), _KEY)),
                "signatures": TensorRule(dtypes=("U8",), dims=(Listed("clients"), _SIGNATURE)),
            },
            params={
                "clients": Clients(custody=_LIST),
                "threshold": WholeNumber(least=2, most=10**6, custody=_LIST),
                "modulus": WholeNumber(among=(32, 64), custody=_LIST),
                "range": Positive(custody=_LIST, optional=True),
                "bits": WholeNumber(least=2, most=53, custody=_LIST, optional=True),
                "colluders": WholeNumber(least=0, most=10**6, custody=_LIST, optional=True),
                "neighbours": WholeNumber(least=2, most=10**6, custody=_LIST, optional=True),
                "share_threshold": WholeNumber(least=2, most=10**6, custody=_LIST, optional=True),
            },
            from_data=False,
        ),
        Kind(
            name="secagg-shares",
            format=Format.TENSORS,
            custodies=("outbound", "downlink"),
            text="shares of mask secrets, each encrypted for the one client that may read it",
            tensors={
                "ciphertexts": TensorRule(dtypes=("U8",), dims=(Listed("senders"), Listed("receivers"), _SEALED)),
                "commitments": TensorRule(dtypes=("U8",), dims=(Listed("senders"), _DIGEST)),
            },
            params={
                "senders": Clients(),
                "receivers": Clients(),
                "present": Clients(custody=_LIST, optional=True),
                "signature": _SIGNED,
            },
            from_data=False,
        ),
        Kind(
            name="secagg-masked",
            format=Format.TENSORS,
            custodies=("outbound",),
            text="an update under masks, uniformly distributed: only the sum of a round's can be uncovered",
            note="One such file alone looks like noise; the sum of a round's files does not.",
            weight_dtypes=("I32", "I64"),
            always_discloses=frozenset({"update"}),
            params={
                "peers": Clients(),
                "step": Positive(),
                "most": WholeNumber(least=1),
                "encoding": Parameters(),
                "signature": _SIGNED,
            },
        ),
        Kind(
            name="secagg-survivors",
            format=Format.TENSORS,
            custodies=("outbound", "downlink"),
            text="whose masked updates count in a round of secure aggregation, and who signed that list",
            tensors={"signatures": TensorRule(dtypes=("U8",), dims=(Listed("signers"), _SIGNATURE))},
            params={"survivors": Clients(), "signers": Clients()},
            from_data=False,
        ),
        Kind(
            name="secagg-unmask",
            format=Format.TENSORS,
            custodies=("outbound",),
            text="what the sum of a round needs to be uncovered: of each client one kind of share, never both",
            tensors={
                "mask_keys": TensorRule(dtypes=("U8",), dims=(Listed("dropped"), _SHARE)),
                "seeds": TensorRule(dtypes=("U8",), dims=(Listed("survivors"), _SHARE)),
            },
            params={"survivors": Clients(), "dropped": Clients(), "signature": _SIGNED},
            from_data=False,
        ),
        Kind(
            name="envelope",
            format=Format.ENVELOPES,
            custodies=("outbound", "downlink", "public"),
            text="signed statements on a file: how it was made, and what it claims about privacy",
            from_data=False,
        ),
        Kind(
            name="head",
            format=Format.ENVELOPES,
            custodies=("outbound",),
            text="the digest of a client's ledger at one moment, signed, for the server to countersign",
            from_data=False,
        ),
        Kind(
            name="receipt",
            format=Format.ENVELOPES,
            custodies=("downlink",),
            text="heads of clients' ledgers, countersigned by the server: those ledgers cannot be rewritten any more",
            from_data=False,
        ),
    )
}
