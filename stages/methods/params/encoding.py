"""What `encode` makes of a client's update, data or state: the declaration that every method of it inherits, and two.

A method is a subclass in a file of its own and registers itself in `ENCODERS`. The command line, recipes and the audit
read from it what it needs; none of them knows it by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from stages.hyperparameters import HyperParameters, When, hyper
from stages.methods.params.client_privacy import PANEL, UpdateBounds
from stages.registry import ENCODERS

_SHARED = When("--noise-multiplier", lambda params: params.noise_multiplier is not None)


@dataclass(frozen=True, kw_only=True)
class Encoder(HyperParameters):
    """Base of every method of `encode`."""

    performed_by: ClassVar[str]
    """The function that makes the file, `module:function`: (model, source, out, *, params, key, client, force, …)."""
    kind: ClassVar[str]
    """The kind of the file that leaves."""
    reads: ClassVar[tuple[str, ...]]
    """The kinds of the private file that it is made from; a replay finds it by these roles."""
    takes: ClassVar[tuple[str, ...]] = ()
    """The options of `encode` that name further files: previous, before, metrics, error_out."""
    on_device: ClassVar[bool] = False
    """It computes with torch: it takes a device and reports its progress."""
    names_previous: ClassVar[bool] = True
    """Its file names the earlier one that it began from; else a replay tries those that the client sent."""
    additive: ClassVar[bool] = False
    """The sum of its files is the file of the sum: secure aggregation may hide the single ones."""
    rule: ClassVar[str] = "mean"
    """The rule of `aggregate` that its files are for, unless the algorithm has its own."""
    by_server: ClassVar[bool] = False
    """The server uses it too: what goes down is such a file of all, which everybody follows, instead of a model."""
    decoded_by: ClassVar[str | None] = None
    """Where its file is no update as it is: the function that makes one of it, `module:function`: (path, model)."""
    decodes_with_torch: ClassVar[bool] = False
    """Decoding computes with torch, so that the last bits depend on the processor."""
    checked_by: ClassVar[str | None] = None
    """For the audit, what does not belong into its file, `module:function`: (found, labels, model)."""

    method: str = hyper("", "How the update, state or data is written.")


@ENCODERS.register
@dataclass(frozen=True, kw_only=True)
class DeltaEncoding(Encoder, UpdateBounds):
    """How an update becomes a message, and what of client-level privacy the client does itself."""

    performed_by: ClassVar[str] = "stages.updates.client:encode_update"
    kind: ClassVar[str] = "message"
    reads: ClassVar[tuple[str, ...]] = ("update",)
    takes: ClassVar[tuple[str, ...]] = ("before",)
    additive: ClassVar[bool] = True

    method: Literal["delta"] = hyper("delta", "delta: the full update.")
    tell_examples: bool = hyper(
        False, "State the number of training examples, for `aggregate --weights examples`. It is declared."
    )
    tell_steps: bool = hyper(False, "State the number of local steps, for `aggregate --rule fednova`. It is declared.")
    noise_multiplier: float | None = hyper(
        None,
        "Noise of the round's sum in units of the clip norm, of which this message carries a share: for rounds whose "
        "messages nobody sees one by one. Without it the server adds the noise, and is trusted.",
        symbol="σ",
        panel=PANEL,
        unit="clip norms",
    )
    least_clients: int | None = hyper(
        None,
        "The fewest messages that a round may end with; the noise is complete with these.",
        symbol="t",
        panel=PANEL,
        when=_SHARED,
        unit="clients",
    )
    colluders: int = hyper(
        0, "Of these, clients that may reveal their noise.", panel=PANEL, when=_SHARED, unit="clients"
    )

    def check(self) -> None:
        super().check()
        if self.noise_multiplier is None:
            return
        for name in ("clip_norm", "least_clients"):
            if getattr(self, name) is None:
                raise ValueError(f"--{name.replace('_', '-')} needs a value with --noise-multiplier")
        if self.adaptive_clip:
            raise ValueError(
                "--adaptive-clip goes with noise that the server adds (aggregate --rule dp-mean): how many updates "
                "were clipped has no share of the noise in the messages"
            )
        if self.tell_examples or self.tell_steps:
            raise ValueError("--tell-examples and --tell-steps would send numbers without noise")
        self.require(0 < self.noise_multiplier < 1e6, "noise_multiplier", "above 0")
        assert self.least_clients is not None  # just checked
        self.require(self.least_clients >= 1, "least_clients", "at least 1")
        self.require(0 <= self.colluders < self.least_clients, "colluders", "at least 0 and less than --least-clients")

    @property
    def shares(self) -> int:
        """t − colluders: over so many messages the noise is spread (privacy contract, rule 23)."""
        return 1 if self.least_clients is None else self.least_clients - self.colluders


@ENCODERS.register
@dataclass(frozen=True, kw_only=True)
class StateEncoding(Encoder):
    """The change of a client's control variates.

    It has no bounds: under client-level DP update and state would share one clip (privacy contract, rule 15).
    """

    performed_by: ClassVar[str] = "stages.updates.client:encode_state"
    kind: ClassVar[str] = "state"
    reads: ClassVar[tuple[str, ...]] = ("state",)
    takes: ClassVar[tuple[str, ...]] = ("previous",)
    rule: ClassVar[str] = "variates"

    method: Literal["state"] = hyper("state", "state: the change of the client's control variates.")
