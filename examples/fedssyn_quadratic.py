"""Fedssyn, Section 2.3 and Fig. 2: how much shuffling a fraction p of the data speeds FedAvg up, on least squares.

Ten clients, f_i(x) = 1/(2n)·Σ_j ‖A_ij x − b_ij‖² with A_ij = i·I, b_ij ~ N(μ_i, σ²/(i²d)), μ_i ~ N(0, ζ²/(i²d)): the
gradients at the optimum then differ by ζ² between clients and by σ² within one (the paper prints (id)⁻² where
i⁻²d⁻¹ is meant). The paper prints neither the number of local steps nor the start; here τ = 10 and x₀ = (1, …, 1).

Usage: python examples/fedssyn_quadratic.py [PICTURE.png]
"""

import sys
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


def rounds_to_target(problem: Problem, step: float) -> int:
    """FedAvg with exact local gradients: τ steps towards the client's own optimum have a closed form."""
    curvature = (problem.a**2).mean(axis=1)[:, None]
    own = (problem.a[..., None] * problem.b).mean(axis=1) / curvature
    shrink = (1 - step * curvature) ** LOCAL_STEPS
    goal, x = problem.optimum(), np.ones(DIMENSION)
    for number in range(1, MOST_ROUNDS + 1):
        x = (own + shrink * (x - own)).mean(axis=0)
        error = ((x - goal) ** 2).sum()
        if error < TARGET:
            return number
        if not error < 1e8:
            break
    return MOST_ROUNDS + 1


def fewest_rounds(problem: Problem) -> int:
    return min(rounds_to_target(problem, step) for step in np.geomspace(1e-5, 0.05, 60))


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


def draw(path: Path, measured: list[int]) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for sigma2, style in ((0.0, "-"), (1000.0, "--")):
        for fraction, colour in ((0.0, "#444444"), (0.5, "#1f5fa8"), (0.9, "#b5652b")):
            rng = np.random.default_rng(1)
            problem = shuffled(make(rng, sigma2), fraction, rng)
            curve = error_curve(problem, rng, step=1e-3, rounds=150)
            left.semilogy(curve, style, color=colour, linewidth=1.2, label=f"σ²={sigma2:.0f}, p={fraction:.1f}")
    left.set(xlabel="round", ylabel="‖x − x*‖²", title="(a) a fixed step size")
    left.legend(fontsize=8, frameon=False, ncols=2)
    right.plot(FRACTIONS, measured, "o-", color="#1f5fa8", label="measured, step size tuned")
    scaled = [measured[0] * theory(f) / theory(0.0) for f in FRACTIONS]
    right.plot(FRACTIONS, scaled, "--", color="#444444", label="theory, ζ̂_p·√L_p")
    right.plot(
        FRACTIONS, [measured[0] * (1 - f) for f in FRACTIONS], ":", color="#999999", label="in proportion to 1−p"
    )
    right.set(xlabel="fraction shuffled, p", ylabel="rounds to the target", title="(b) rounds to ‖x − x*‖² < 1.1·10⁻⁶")
    right.legend(fontsize=8, frameon=False)
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=120, metadata={"Software": None})


def main() -> list[tuple[float, int, float]]:
    rows = []
    print(f"{'p':>4} {'rounds':>7} {'theory':>7} {'ζ̂²':>7} {'(1−p)²ζ²':>9}")
    for fraction in FRACTIONS:
        rng = np.random.default_rng(0)
        whole = make(rng, sigma2=0.0)
        problem = shuffled(whole, float(fraction), rng)
        found, zeta2 = fewest_rounds(problem), problem.dissimilarity(problem.optimum())
        before = whole.dissimilarity(whole.optimum())
        rows.append((float(fraction), found, zeta2))
        expected = rows[0][1] * theory(fraction) / theory(0.0)
        print(f"{fraction:4.1f} {found:7d} {expected:7.1f} {zeta2:7.2f} {(1 - fraction) ** 2 * before:9.2f}")
    if len(sys.argv) > 1:
        draw(Path(sys.argv[1]), [found for _, found, _ in rows])
    return rows


if __name__ == "__main__":
    main()
