"""Hyper-parameters of local training, for every federated algorithm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stages.hyperparameters import hyper
from stages.methods.params.record_privacy import RoundPrivacy
from stages.methods.params.schedule import RateSchedule

Algorithm = Literal["fedavg", "fedsgd", "fedprox", "scaffold", "feddyn", "fedpvr", "fednova"]

# Whose clients keep something from round to round, and whose clients send it too. FedDyn's server keeps its own.
KEEPS_STATE = ("scaffold", "fedpvr", "feddyn")
SENDS_STATE = ("scaffold", "fedpvr")
# Whose local steps may be DP-SGD: what they add to a gradient is made from noised weights.
PRIVATE = ("fedavg", "fedprox", "scaffold")
_SAM, _BLUR = "Flat minima (with any algorithm)", "Small updates (with any algorithm)"
_UPDATE_PENALTY = 1.0


@dataclass(frozen=True, kw_only=True)
class LocalTraining(RoundPrivacy, RateSchedule):
    """What a client does with the model in one round; by DP-SGD if noise is asked for."""

    algorithm: Algorithm = hyper("fedavg", "Federated algorithm.")
    local_epochs: int | None = hyper(
        None, "Passes over the client's data in a round; 1 if neither this nor --local-steps is given.", symbol="E"
    )
    local_steps: int | None = hyper(None, "Gradient steps in a round, instead of epochs.", symbol="τ")
    epochs_of: Literal["all", "first"] = hyper(
        "all",
        "What an epoch counts: all datasets, or the first alone, so that added synthetic data means no more steps.",
    )
    batch_size: int = hyper(32, "Examples in a gradient step (fedsgd takes all of them).", symbol="B")
    momentum: float = hyper(0.0, "Momentum of the local optimiser, which starts anew each round.")
    weight_decay: float = hyper(0.0, "Weight decay of the local optimiser.")
    mu: float | None = hyper(
        None,
        "fedprox: weight of the proximal term μ/2·‖w − w₀‖²; 0.01, as in Fedssyn, if not given.",
        symbol="μ",
        source="paper",
        panel="fedprox",
    )
    alpha: float | None = hyper(
        None,
        "feddyn: weight of the dynamic regulariser; 0.01, from Fedssyn's range, if not given.",
        symbol="α",
        source="paper",
        panel="feddyn",
    )
    sam_rho: float | None = hyper(
        None,
        "Sharpness-aware steps: the gradient is taken this far uphill, to find a flat minimum; twice the work. "
        "DP-FedSAM has 0.5; off if not given.",
        symbol="ρ",
        source="paper",
        panel=_SAM,
    )
    adaptive_sam: bool | None = hyper(
        None, "Measure that distance in units of each weight (Kwon et al. 2021); plain if not given.", panel=_SAM
    )
    update_bound: float | None = hyper(
        None,
        "BLUR: beyond this length the update pays λ/2·(‖w − w₀‖² − S²); normally the norm that it will be clipped to.",
        symbol="S",
        panel=_BLUR,
    )
    update_penalty: float | None = hyper(
        None, "Weight of that penalty, if --update-bound is given (1, ours).", symbol="λ", panel=_BLUR
    )

    def check(self) -> None:
        super().check()
        self._check_privacy()
        if self.local_epochs is not None and self.local_steps is not None:
            raise ValueError("--local-epochs and --local-steps exclude each other: give one")
        self.require(self.local_epochs is None or self.local_epochs >= 1, "local_epochs", "at least 1")
        self.require(self.local_steps is None or self.local_steps >= 1, "local_steps", "at least 1")
        self.require(self.batch_size >= 1, "batch_size", "at least 1")
        self.require(0 <= self.momentum < 1, "momentum", "from 0 up to, not including, 1")
        self.require(self.weight_decay >= 0, "weight_decay", "0 or more")
        for name, owner in (("mu", "fedprox"), ("alpha", "feddyn")):
            absent = getattr(self, name) is None
            rule = f"absent with --algorithm {self.algorithm} (it belongs to {owner})"
            self.require(absent or self.algorithm == owner, name, rule)
        self.require(self.mu is None or self.mu >= 0, "mu", "0 or more")
        self.require(self.alpha is None or self.alpha > 0, "alpha", "above 0")
        self._check_sam_and_blur()
        if self.algorithm in SENDS_STATE:
            # Option II reads the mean gradient off the weights, which momentum would blur.
            self.require(self.momentum == 0, "momentum", f"0 with --algorithm {self.algorithm}")
        if self.algorithm == "fedsgd":
            alone = self.local_epochs in (None, 1) and self.local_steps in (None, 1)
            if not alone or self.momentum:
                raise ValueError(
                    "--algorithm fedsgd is one full-batch step a round: leave out --local-epochs, --local-steps "
                    "and --momentum"
                )

    def _check_privacy(self) -> None:
        if not self.is_private:
            return
        self.require(self.algorithm in PRIVATE, "algorithm", f"one of {', '.join(PRIVATE)} under differential privacy")
        if self.local_steps is None:
            raise ValueError(
                "--local-steps needs a value under differential privacy: epochs would tell how many images"
            )
        if self.sam_rho is not None:
            raise ValueError(
                f"--sam-rho {self.sam_rho:g} does not go with --noise-multiplier or --target-epsilon here: each of its "
                "steps takes two gradients of the records, which would be two releases where one is charged. Leave out "
                "one of the two; noise on whole clients (encode, aggregate) goes with it"
            )

    def _check_sam_and_blur(self) -> None:
        self.require(self.sam_rho is None or self.sam_rho > 0, "sam_rho", "above 0, or absent to turn it off")
        self.require(self.sam_rho is not None or not self.adaptive_sam, "adaptive_sam", "given with --sam-rho only")
        bound, penalty = self.update_bound, self.update_penalty
        self.require(bound is None or bound > 0, "update_bound", "above 0")
        self.require(penalty is None or penalty >= 0, "update_penalty", "0 or more")
        self.require(penalty is None or bound is not None, "update_penalty", "given with --update-bound only")

    @property
    def proximal_weight(self) -> float:
        """μ; 0.01 as in Fedssyn's experiments where none is given."""
        return 0.01 if self.mu is None else self.mu

    @property
    def dynamic_weight(self) -> float:
        """FedDyn's α; 0.01 where none is given."""
        return 0.01 if self.alpha is None else self.alpha

    @property
    def penalty_weight(self) -> float:
        """BLUR's λ. The appendix that would say the paper's is not at hand; 1 is ours."""
        return _UPDATE_PENALTY if self.update_penalty is None else self.update_penalty
