"""Fedssyn, Section 2.3 and Fig. 2: how much shuffling a fraction p of the data speeds FedAvg up, on least squares.

Ten clients, f_i(x) = 1/(2n)·Σ_j ‖A_ij x − b_ij‖² with A_ij = i·I, b_ij ~ N(μ_i, σ²/(i²d)), μ_i ~ N(0, ζ²/(i²d)): the
gradients at the optimum then differ by ζ² between clients and by σ² within one (the paper prints (id)⁻² where
i⁻²d⁻¹ is meant). The paper prints neither the number of local steps nor the start; here τ = 10 and x₀ = (1, …, 1).

Rounds are fitted as the paper fits them, R_p = A_p/√ε + B_p over several ε (Fig. A.4). Its theory says that A_p falls
like ζ̂_p·√L_p. Here it falls faster, like (1−p)²: with σ² = 0 the step size is limited by where FedAvg comes to rest.
To first order that is off by η(τ−1)/2·mean_i(â_i·ĝ_i)/mean_i(â_i), â_i a client's curvature and ĝ_i its gradient at
the optimum. Gradients sum to zero, so that only the spread of the curvatures counts, and shuffling shrinks both by 1−p.
Corollary I bounds the curvature by L_p instead, which shrinks less: it is an upper bound, not the rate.

Usage: python examples/fedssyn_quadratic.py [PICTURE.png] [--json] [--seed N]
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

CLIENTS, DIMENSION, PAIRS = 10, 25, 100
ZETA2, TARGET, LOCAL_STEPS, MOST_ROUNDS = 10.0, 1.1e-6, 10, 1500
BATCH = 50
FRACTIONS = np.linspace(0.0, 1.0, 11)


@dataclass(frozen=True)
class Problem:
    """`a` [clients, pairs] are the factors i of A = i·I, `b` [clients, pairs, d] the targets."""

    a: np.ndarray
    b: np.ndarray

    def optimum(self) -> np.ndarray:
        return (self.a[..., None] * self.b).sum((0, 1)) / (self.a**2).sum()

    def gradients(self, x: np.ndarray) -> np.ndarray:
        """∇F(x, ξ) = A(Ax − b) for every pair, [clients, pairs, d]."""
        return (self.a**2)[..., None] * x - self.a[..., None] * self.b

    def dissimilarity(self, x: np.ndarray) -> float:
        """ζ² of Assumption 1 at x: mean squared distance of the clients' gradients from their mean."""
        by_client = self.gradients(x).mean(axis=1)
        return float(((by_client - by_client.mean(axis=0)) ** 2).sum(axis=1).mean())

    def noise(self, x: np.ndarray) -> float:
        """σ² of Assumption 2 at x, averaged over the clients."""
        gradients = self.gradients(x)
        return float(((gradients - gradients.mean(axis=1, keepdims=True)) ** 2).sum(axis=2).mean())


def make(rng: np.random.Generator, sigma2: float) -> Problem:
    i = np.arange(1.0, CLIENTS + 1)
    scale = 1 / (i * np.sqrt(DIMENSION))
    centre = rng.normal(size=(CLIENTS, DIMENSION)) * np.sqrt(ZETA2) * scale[:, None]
    noise = rng.normal(size=(CLIENTS, PAIRS, DIMENSION)) * np.sqrt(sigma2) * scale[:, None, None]
    return Problem(np.repeat(i[:, None], PAIRS, axis=1), centre[:, None] + noise)


def shuffled(problem: Problem, fraction: float, rng: np.random.Generator) -> Problem:
    """Take a fraction of every client's pairs, mix them, deal them out again; the sum of all objectives is kept."""
    count = round(fraction * PAIRS)
    a, b = problem.a.copy(), problem.b.copy()
    rows = np.arange(CLIENTS)[:, None]
    places = np.stack([rng.choice(PAIRS, count, replace=False) for _ in range(CLIENTS)])
    order = rng.permutation(CLIENTS * count)
    a[rows, places] = problem.a[rows, places].reshape(-1)[order].reshape(CLIENTS, count)
    b[rows, places] = problem.b[rows, places].reshape(-1, DIMENSION)[order].reshape(CLIENTS, count, DIMENSION)
    return Problem(a, b)


def rounds_to_target(problem: Problem, step: float, target: float = TARGET) -> int:
    """FedAvg with exact local gradients. A round is x ← c + s·x with one number s, so that the error after t rounds is
    ‖(x∞ − x*) + sᵗ(x₀ − x∞)‖².
    """
    curvature = (problem.a**2).mean(axis=1)[:, None]
    own = (problem.a[..., None] * problem.b).mean(axis=1) / curvature
    shrink = (1 - step * curvature) ** LOCAL_STEPS
    factor = float(shrink.mean())
    if not abs(factor) < 1:
        return MOST_ROUNDS + 1
    rest = ((1 - shrink) * own).mean(axis=0) / (1 - factor)
    off, way = rest - problem.optimum(), np.ones(DIMENSION) - rest
    power = factor ** np.arange(1, MOST_ROUNDS + 1)
    errors = off @ off + 2 * power * (off @ way) + power**2 * (way @ way)
    below = np.flatnonzero(errors < target)
    return int(below[0]) + 1 if len(below) else MOST_ROUNDS + 1


def fewest_rounds(problem: Problem, target: float = TARGET) -> int:
    return min(rounds_to_target(problem, step, target) for step in np.geomspace(1e-5, 0.05, 120))


def fitted(problem: Problem) -> tuple[float, float]:
    """A and B of R = A/√ε + B, over targets from 10⁻⁵ to that of Fig. 2 (App. A.3.2)."""
    targets = np.geomspace(1e-5, TARGET, 5)
    rounds = [fewest_rounds(problem, float(target)) for target in targets]
    slope, start = np.polyfit(1 / np.sqrt(targets), rounds, 1)
    return float(slope), float(start)


def resting_bias(problem: Problem) -> np.ndarray:
    """How far from the optimum FedAvg comes to rest, for each unit of the step size, to first order."""
    curvature = (problem.a**2).mean(axis=1)
    gradients = problem.gradients(problem.optimum()).mean(axis=1)
    return (LOCAL_STEPS - 1) / 2 * (curvature[:, None] * gradients).mean(axis=0) / curvature.mean()


def theory(fraction: float) -> float:
    """Corollary I where ζ dominates: rounds ∝ ζ̂_p·√L_p, with Lemma 1's ζ̂_p = (1−p)ζ and L_p = (1−p)L_max + pL_avg."""
    squares = np.arange(1.0, CLIENTS + 1) ** 2
    return (1 - fraction) * np.sqrt((1 - fraction) * squares.max() + fraction * squares.mean())


def error_curve(problem: Problem, rng: np.random.Generator, step: float, rounds: int) -> list[float]:
    """Fig. 2a: FedAvg with random batches and a fixed step size."""
    goal, x = problem.optimum(), np.ones(DIMENSION)
    curve = []
    everyone = np.arange(CLIENTS)[:, None]
    for _ in range(rounds):
        local = np.repeat(x[None], CLIENTS, axis=0)
        for _ in range(LOCAL_STEPS):
            drawn = rng.random((CLIENTS, PAIRS)).argsort(axis=1)[:, :BATCH]
            a, b = problem.a[everyone, drawn][..., None], problem.b[everyone, drawn]
            local -= step * (a * a * local[:, None] - a * b).mean(axis=1)
        x = local.mean(axis=0)
        curve.append(float(((x - goal) ** 2).sum()))
    return curve


@dataclass(frozen=True)
class Measured:
    """One fraction: rounds to the target, A and its ratio to that of p = 0, what theory and bias say of it, ζ̂²."""

    fraction: float
    rounds: int
    slope: float
    slope_ratio: float
    theory_ratio: float
    bias_ratio: float
    zeta2: float
    zeta2_lemma: float


def measure(seed: int) -> list[Measured]:
    found: list[Measured] = []
    first_bias = first_slope = 0.0
    for fraction in map(float, FRACTIONS):
        rng = np.random.default_rng(seed)
        whole = make(rng, sigma2=0.0)
        problem = shuffled(whole, fraction, rng)
        slope, _ = fitted(problem)
        bias = float(np.linalg.norm(resting_bias(problem)))
        first_slope, first_bias = first_slope or slope, first_bias or bias
        found.append(
            Measured(
                fraction=fraction,
                rounds=fewest_rounds(problem),
                slope=slope,
                slope_ratio=slope / first_slope,
                theory_ratio=theory(fraction) / theory(0.0),
                bias_ratio=bias / first_bias,
                zeta2=problem.dissimilarity(problem.optimum()),
                zeta2_lemma=(1 - fraction) ** 2 * whole.dissimilarity(whole.optimum()),
            )
        )
    return found


def draw(path: Path, measured: list[Measured]) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.2, 3.8), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for sigma2, style in ((0.0, "-"), (1000.0, "--")):
        for fraction, colour in ((0.0, "#444444"), (0.5, "#1f5fa8"), (0.9, "#b5652b")):
            rng = np.random.default_rng(1)
            problem = shuffled(make(rng, sigma2), fraction, rng)
            curve = error_curve(problem, rng, step=1e-3, rounds=150)
            left.semilogy(curve, style, color=colour, linewidth=1.2, label=f"σ²={sigma2:.0f}, p={fraction:.1f}")
    left.set(xlabel="round", ylabel="‖x − x*‖²", title="(a) a fixed step size")
    left.legend(fontsize=8, frameon=False, ncols=2)
    first = measured[0].rounds
    lines = {
        "theory, ζ̂_p·√L_p": ("--", "#444444", [one.theory_ratio for one in measured]),
        "bias at rest, to first order": ("-.", "#b5652b", [one.bias_ratio for one in measured]),
        "in proportion to 1−p": (":", "#999999", [1 - f for f in FRACTIONS]),
    }
    for axis, scale, marks in (
        (middle, first, [one.rounds for one in measured]),
        (right, 1, [one.slope_ratio for one in measured]),
    ):
        axis.plot(FRACTIONS, marks, "o-", color="#1f5fa8", label="measured, step size tuned")
        for label, (style, colour, ratios) in lines.items():
            axis.plot(FRACTIONS, [scale * ratio for ratio in ratios], style, color=colour, label=label)
        axis.set_xlabel("fraction shuffled, p")
        axis.legend(fontsize=8, frameon=False)
    middle.set(ylabel="rounds to the target", title="(b) rounds to ‖x − x*‖² < 1.1·10⁻⁶")
    right.set(ylabel="A_p / A_0", title="(c) the slope in R_p = A_p/√ε + B_p")
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=120, metadata={"Software": None})


def main(words: list[str] | None = None) -> list[Measured]:
    parser = argparse.ArgumentParser(description="Fig. 2 and A.4 of Fedssyn on least squares.")
    parser.add_argument("picture", type=Path, nargs="?")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(words)
    rows = measure(options.seed)
    if options.json:
        print(json.dumps({"rows": [{"group": f"p={row.fraction:.1f}", **vars(row)} for row in rows]}))
    else:
        print(f"{'p':>4} {'rounds':>7} {'A_p':>7} {'A_p/A_0':>8} {'theory':>7} {'bias':>6} {'ζ̂²':>7} {'(1−p)²ζ²':>9}")
        for row in rows:
            print(
                f"{row.fraction:4.1f} {row.rounds:7d} {row.slope:7.4f} {row.slope_ratio:8.3f} {row.theory_ratio:7.3f} "
                f"{row.bias_ratio:6.3f} {row.zeta2:6.2f} {row.zeta2_lemma:9.2f}"
            )
    if options.picture is not None:
        draw(options.picture, rows)
    return rows


if __name__ == "__main__":
    main()
