"""Local training: what every federated algorithm's client does in a round, and the facts that the rest needs to know.

An algorithm is a subclass in a file of its own, next to its maths (`stages/methods/<name>.py`), and registers itself
in `ALGORITHMS`. Recipes, secure aggregation, the audit and the command line ask the class, never its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from stages.hyperparameters import By, When, hyper
from stages.methods.params.record_privacy import EFFORT, Effort, RoundPrivacy
from stages.methods.params.schedule import RateSchedule

if TYPE_CHECKING:
    from torch import Tensor, nn

    from stages.methods.blur import UpdatePenalty
    from stages.methods.local_training import LocalAlgorithm

LARGEST_PLAIN_RADIUS = 0.1  # of SAM, where it is not measured in units of the weights (Foret et al. 2021)
_LATER = "Noise or masks for whole clients later"
_SAM, _BLUR = "Flat minima (with any algorithm)", "Small updates (with any algorithm)"


@dataclass(frozen=True, kw_only=True)
class LocalTraining(RoundPrivacy, Effort, RateSchedule):
    """What a client does with the model in one round; by DP-SGD if noise is asked for."""

    # Facts. Each default is the cautious one: an algorithm is neither private nor additive before it says so.
    keeps_state: ClassVar[bool] = False
    """The client keeps something from one of its rounds to the next."""
    sends_state: ClassVar[bool] = False
    """It also sends the change of that to the server, which sends its own part back (`aggregate --rule variates`)."""
    record_dp: ClassVar[bool] = False
    """Local steps may be DP-SGD: what the algorithm adds to a gradient is made from noised weights alone."""
    client_noise: ClassVar[bool] = False
    """All that leaves is the update, so noise on the sum of the updates (`dp-mean`) covers a whole client."""
    additive: ClassVar[bool] = False
    """The uniform mean of the updates is all that the server needs: secure aggregation may hide the single ones."""
    rule: ClassVar[str] = "mean"
    """The rule of `aggregate` that its messages are for."""
    stacks: ClassVar[bool] = False
    """What it adds to a gradient is made weight by weight, and it keeps nothing: clients may be trained together."""
    states_counts: ClassVar[tuple[str, ...]] = ()
    """Counts that its messages must state, by the parameter of `encode` that does so."""

    algorithm: str = hyper("", "Federated algorithm.")
    weight_decay: float = hyper(0.0, "Weight decay of the local optimiser.")
    sam_rho: float | None = hyper(
        None,
        "Sharpness-aware steps: the gradient is taken this far uphill, to find a flat minimum; twice the work. Plain "
        "SAM: 0.05 to 0.1 (Foret et al. 2021); adaptive: 0.5, as DP-FedSAM's public code. Off if not given.",
        symbol="ρ",
        source="paper",
        panel=_SAM,
        unit="L2 distance",
    )
    adaptive_sam: bool = hyper(
        False,
        "Measure that distance in units of each weight (Kwon et al. 2021).",
        panel=_SAM,
        when=When("--sam-rho", lambda params: params.sam_rho is not None),
    )

    together: int | None = hyper(
        None,
        "Clients that are trained at once, their weights stacked: faster for small networks and many clients. `run` "
        "fills the places; alone, a client takes the time of all of them. The last bits differ from a training without "
        "it, and from one with another number, but not by the other clients.",
        panel=EFFORT,
        unit="clients",
    )

    covered_as: Literal["client"] | None = hyper(
        None,
        "client: what leaves is noised or masked as a whole later. Then nothing in the data makes a refusal, which "
        "others would see: an image that cannot be decoded is black, and who has no images sends zeros.",
        panel=_LATER,
    )

    def check(self) -> None:
        super().check()
        self._check_together()
        if self.covered_as is not None and self.is_private:
            raise ValueError("--covered-as client is for noise that comes later: leave it out, or this noise")
        self.require(self.weight_decay >= 0, "weight_decay", "0 or more")
        self.require(self.sam_rho is None or self.sam_rho > 0, "sam_rho", "above 0, or absent to turn it off")
        if self.is_private:
            self._check_private()

    def _check_together(self) -> None:
        if self.together is None:
            return
        self.require(self.together >= 2, "together", "at least 2, or absent")
        if not self.stacks:
            from stages.registry import ALGORITHMS

            self.require(False, "algorithm", f"one of {', '.join(ALGORITHMS.having('stacks'))} with --together")
        others = {
            "--noise-multiplier or --target-epsilon": self.is_private,
            "--micro-batch": self.micro_batch is not None,
            "--precision": self.precision is not None,
        }
        for flag, given in others.items():
            if given:
                raise ValueError(f"--together {self.together} does not go with {flag}: leave out one of the two")

    def _check_private(self) -> None:
        if not self.record_dp:
            from stages.registry import ALGORITHMS

            private = ", ".join(ALGORITHMS.having("record_dp"))
            self.require(False, "algorithm", f"one of {private} under differential privacy")
        if self.sam_rho is not None:
            raise ValueError(
                f"--sam-rho {self.sam_rho:g} does not go with --noise-multiplier or --target-epsilon here: each of its "
                "steps takes two gradients of the records, which would be two releases where one is charged. Leave out "
                "one of the two; noise on whole clients (encode, aggregate) goes with it"
            )

    def warnings(self) -> list[str]:
        """What a person should know who asks for this, though it is allowed."""
        if self.sam_rho is None or self.adaptive_sam or self.sam_rho <= LARGEST_PLAIN_RADIUS:
            return []
        return [
            f"--sam-rho {self.sam_rho:g} is far for plain SAM, whose published radii are 0.05 to "
            f"{LARGEST_PLAIN_RADIUS:g}: the gradient there may say nothing about the weights here. DP-FedSAM's 0.5 is "
            "for adaptive SAM: add --adaptive-sam"
        ]

    def num_steps(self, sizes: Sequence[int]) -> int:
        """Gradient steps in a round on datasets of these sizes."""
        raise NotImplementedError

    def num_in_batch(self, num_examples: int) -> int:
        """Examples in a gradient step, of the `num_examples` that the client has."""
        raise NotImplementedError

    def optimiser(self) -> dict[str, float]:
        """The settings of torch's SGD beside the rate."""
        return {"weight_decay": self.weight_decay}

    def unfit(self, named: Mapping[str, nn.Parameter]) -> str | None:  # noqa: ARG002
        """Why the algorithm cannot train a network of these parameters, with the remedy; None where it can."""
        return None

    def penalty(self, named: Mapping[str, nn.Parameter], *, stacked: bool = False) -> UpdatePenalty | None:  # noqa: ARG002
        """BLUR's penalty on the update of a round that begins with these weights; None where there is none."""
        return None

    def client(
        self,
        named: Mapping[str, nn.Parameter],  # noqa: ARG002  (algorithms that correct the gradients override this)
        own: Mapping[str, Tensor],  # noqa: ARG002
        server: Mapping[str, Tensor],  # noqa: ARG002
    ) -> LocalAlgorithm:
        """The client's side of the algorithm for one round that begins with the weights `named`.

        `own` is what the client kept from its last round, `server` what the server sent; both empty at first.
        """
        from stages.methods.fedavg import FedAvg

        return FedAvg()


@dataclass(frozen=True, kw_only=True)
class BatchTraining(LocalTraining):
    """Several steps a round, on batches: all algorithms but FedSGD."""

    local_epochs: int | None = hyper(
        By("local_steps", {None: 1}), "Passes over the client's data in a round.", symbol="E", unit="epochs"
    )
    local_steps: int | None = hyper(None, "Gradient steps in a round, instead of epochs.", symbol="τ", unit="steps")
    epochs_of: Literal["all", "first"] = hyper(
        "all",
        "What an epoch counts: all datasets, or the first alone, so that added synthetic data means no more steps.",
        when=When("--local-epochs", lambda params: params.local_epochs is not None),
    )
    batch_size: int = hyper(32, "Examples in a gradient step.", symbol="B", unit="images")
    momentum: float = hyper(0.0, "Momentum of the local optimiser, which starts anew each round.")
    update_bound: float | None = hyper(
        None,
        "BLUR: beyond this length the update pays λ/2·(‖w − w₀‖² − S²); normally the norm that it will be clipped to.",
        symbol="S",
        panel=_BLUR,
        unit="L2 norm",
    )
    # The appendix that would say the paper's λ is not at hand.
    update_penalty: float = hyper(
        1.0,
        "Weight of that penalty.",
        symbol="λ",
        panel=_BLUR,
        when=When("--update-bound", lambda params: params.update_bound is not None),
    )

    def check(self) -> None:
        if self.local_epochs is not None and self.local_steps is not None:
            raise ValueError("--local-epochs and --local-steps exclude each other: give one")
        super().check()
        self.require(self.local_epochs is None or self.local_epochs >= 1, "local_epochs", "at least 1")
        self.require(self.local_steps is None or self.local_steps >= 1, "local_steps", "at least 1")
        self.require(self.batch_size >= 1, "batch_size", "at least 1")
        self.require(0 <= self.momentum < 1, "momentum", "from 0 up to, not including, 1")
        self.require(self.update_bound is None or self.update_bound > 0, "update_bound", "above 0")
        self.require(self.update_penalty >= 0, "update_penalty", "0 or more")

    def _check_private(self) -> None:
        super()._check_private()
        if self.local_steps is None:
            raise ValueError(
                "--local-steps needs a value under differential privacy: epochs would show how many images there are"
            )

    def num_steps(self, sizes: Sequence[int]) -> int:
        """τ as given, or E·⌈n/B⌉."""
        if self.local_epochs is None:
            assert self.local_steps is not None  # one of the two has a value
            return self.local_steps
        epoch_size = sizes[0] if self.epochs_of == "first" else sum(sizes)
        return self.local_epochs * -(-epoch_size // self.batch_size)

    def num_in_batch(self, num_examples: int) -> int:  # noqa: ARG002
        return self.batch_size

    def optimiser(self) -> dict[str, float]:
        return {**super().optimiser(), "momentum": self.momentum}

    def penalty(self, named: Mapping[str, nn.Parameter], *, stacked: bool = False) -> UpdatePenalty | None:
        if self.update_bound is None:
            return None
        from stages.methods.blur import UpdatePenalty

        return UpdatePenalty(named, weight=self.update_penalty, bound=self.update_bound, stacked=stacked)
