"""What `aggregate` makes of the clients' files: the declaration that every rule inherits, and the rules that average.

A rule is a subclass, in the file of its method where it has one, and registers itself in `RULES`. The command line,
recipes and the audit read from it what it needs; none of them knows it by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from stages.hyperparameters import HyperParameters, When, hyper
from stages.methods.params.client_privacy import PANEL, PUBLIC_MASKS, UpdateBounds
from stages.registry import RULES

if TYPE_CHECKING:
    from stages.methods.averaging import Array


_ADAPTIVE = When("--adaptive-clip", lambda params: params.adaptive_clip)


@dataclass(frozen=True, kw_only=True)
class Rule(HyperParameters):
    """Base of every rule of `aggregate`."""

    performed_by: ClassVar[str]
    """The function that applies it, `module:function`: (model, files, out, *, params, key, signed_by, force, …)."""
    reads: ClassVar[str] = "update"
    """What the clients' files carry, an update or a state; else the kind of file that it is for."""
    writes: ClassVar[tuple[str, ...]] = ("model",)
    """What it can make, its usual result first; another one is asked for by `--as`."""
    takes: ClassVar[tuple[str, ...]] = ()
    """The options of `aggregate` that it has a use for: state, state_out, before, strict, metrics, seed."""
    on_device: ClassVar[bool] = False
    """It computes with torch: it takes a device."""
    noised: ClassVar[bool] = False
    """The server adds noise for whole clients, so it clips and masks as `encode` does, and draws clients secretly."""
    linear: ClassVar[bool] = False
    """The mean of the updates is all that it needs: secure aggregation may hide the single ones."""
    agrees: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """What clients and server must agree on: a recipe says it once, for the clients' stage of this name."""

    rule: str = hyper("", "How the files become the next model.")

    @classmethod
    def agreed(cls, recipe: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """The values that it takes over from the sections of a recipe."""
        return {
            name: recipe[stage][name]
            for stage, names in cls.agrees.items()
            for name in names
            if recipe.get(stage, {}).get(name) is not None
        }


@dataclass(frozen=True, kw_only=True)
class Averaging(Rule):
    """Rules that begin with a mean over the clients' updates."""

    performed_by: ClassVar[str] = "stages.updates.server:average"

    def needed_counts(self) -> dict[str, str]:
        """The counts that each message must state, with the flag of `encode` that makes it do so."""
        return {}

    def gathering(self) -> Any:
        """An empty mean, to which `add` adds the clients' updates one by one."""
        from stages.methods.averaging import WeightedMean

        return WeightedMean()

    def add(self, mean: Any, update: Mapping[str, Array], counts: Mapping[str, int]) -> None:  # noqa: ARG002
        mean.add(update, 1)

    def result(
        self, model: Mapping[str, Array], mean: Mapping[str, Array], state: Mapping[str, Array] | None, share: float
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """What is written, and what the server keeps for its next round.

        `state` is what it kept from the round before, `share` the part |S|/N of all clients that took part.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class ClientWeights(Averaging):
    """Rules under which a client may weigh by its number of examples."""

    weights: Literal["uniform", "examples"] = hyper(
        "uniform", "Weigh clients equally, or by the number of examples that their messages declare.", symbol="a_k"
    )

    def needed_counts(self) -> dict[str, str]:
        counted = {"num_examples": "--tell-examples"} if self.weights == "examples" else {}
        return {**super().needed_counts(), **counted}

    def weight_of(self, counts: Mapping[str, int]) -> int:
        return counts["num_examples"] if self.weights == "examples" else 1

    def add(self, mean: Any, update: Mapping[str, Array], counts: Mapping[str, int]) -> None:
        mean.add(update, self.weight_of(counts))


@dataclass(frozen=True, kw_only=True)
class ServerStep(Averaging):
    """Rules whose next model is x − η_g · mean."""

    writes: ClassVar[tuple[str, ...]] = ("model", "update")

    server_rate: float = hyper(
        1.0, "Step size of the server: x − η_g · mean update.", symbol="η_g", source="paper", unit="step size"
    )

    def check(self) -> None:
        super().check()
        self.require(self.server_rate > 0, "server_rate", "above 0")

    def result(
        self,
        model: Mapping[str, Array],
        mean: Mapping[str, Array],
        state: Mapping[str, Array] | None,  # noqa: ARG002
        share: float,  # noqa: ARG002
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        from stages.methods.averaging import apply_update

        return apply_update(model, mean, rate=self.server_rate), {}


@RULES.register
@dataclass(frozen=True, kw_only=True)
class MeanRule(ClientWeights, ServerStep):
    """FedAvg's server."""

    linear: ClassVar[bool] = True

    rule: Literal["mean"] = hyper("mean", "mean: of the updates, as FedAvg has it.")


@RULES.register
@dataclass(frozen=True, kw_only=True)
class DpMeanRule(UpdateBounds, ServerStep):
    """McMahan et al. 2018: the server clips again, sums, adds noise and divides by the expected number of clients."""

    takes: ClassVar[tuple[str, ...]] = ("before",)
    noised: ClassVar[bool] = True

    rule: Literal["dp-mean"] = hyper(
        "dp-mean",
        "dp-mean: updates clipped, summed, noised by the server and divided by the expected number of clients.",
    )
    clip_norm: float = hyper(
        None,
        "The whole update is clipped to this Euclidean length.",
        symbol="C",
        source="paper",
        panel=PANEL,
        unit="L2 norm",
    )
    noise_multiplier: float = hyper(
        None,
        "dp-mean: noise of the sum in units of the clip norm.",
        symbol="σ",
        source="paper",
        panel=PANEL,
        unit="clip norms",
    )
    sampling_rate: float = hyper(
        None,
        "dp-mean: each client takes part with this probability, drawn secretly by sample-clients; 1: all do.",
        symbol="q",
        source="paper",
        panel=PANEL,
        unit="probability",
    )
    clients: int = hyper(None, "Number of all clients.", symbol="N", unit="clients")
    clip_quantile: float = hyper(
        0.5, "The share of updates that the clip shall leave as they are.", symbol="γ", source="paper", panel=PANEL,
        when=_ADAPTIVE, unit="share",
    )  # fmt: skip
    clip_rate: float = hyper(
        0.2, "Step size of the clip: C · exp(−η_C·(share within − γ)).", symbol="η_C", source="paper", panel=PANEL,
        when=_ADAPTIVE, unit="step size",
    )  # fmt: skip
    count_noise: float = hyper(
        0.05, "Noise of the share of updates within the clip; that of their number is σ_b = this times qN.",
        symbol="σ_b/(qN)", source="paper", panel=PANEL, when=_ADAPTIVE,
    )  # fmt: skip

    def check(self) -> None:
        super().check()
        self.require(0 < self.noise_multiplier < 1e6, "noise_multiplier", "above 0")
        self.require(0 < self.sampling_rate <= 1, "sampling_rate", "above 0 and at most 1")
        self.require(self.clients >= 1, "clients", "at least 1")
        if self.adaptive_clip:
            self.require(0 < self.clip_quantile < 1, "clip_quantile", "above 0 and below 1")
            self.require(0 < self.clip_rate <= 10, "clip_rate", "above 0 and at most 10")
            self.require(0 < self.count_noise < 1e6, "count_noise", "above 0")

    @property
    def expected_clients(self) -> float:
        """qN, the public divisor: never the number that took part (privacy contract, rule 12)."""
        return self.sampling_rate * self.clients

    @classmethod
    def agreed(cls, recipe: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """The clip, and a mask that is public; what a client chooses by its own update the server cannot know."""
        encoding = recipe.get("encode", {})
        masked = ("sparsify", "keep", "mask_seed") if encoding.get("sparsify") in PUBLIC_MASKS else ()
        return {
            name: encoding[name] for name in ("clip_norm", "adaptive_clip", *masked) if encoding.get(name) is not None
        }


@RULES.register
@dataclass(frozen=True, kw_only=True)
class VariatesRule(Averaging):
    """The server's side of SCAFFOLD's control variates."""

    reads: ClassVar[str] = "state"
    writes: ClassVar[tuple[str, ...]] = ("state",)
    takes: ClassVar[tuple[str, ...]] = ("state",)

    rule: Literal["variates"] = hyper("variates", "variates: scaffold's and fedpvr's c + |S|/N · mean Δc.")
    clients: int = hyper(None, "Number of all clients.", symbol="N", unit="clients")

    def check(self) -> None:
        super().check()
        self.require(self.clients >= 1, "clients", "at least 1")

    def result(
        self,
        model: Mapping[str, Array],  # noqa: ARG002
        mean: Mapping[str, Array],
        state: Mapping[str, Array] | None,
        share: float,
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        from stages.methods.averaging import next_variates

        return next_variates(state or {}, mean, share=share), {}
