"""FedDM, Fig. 1 and Appendix C: twenty synthetic examples stand in for a hundred real ones around w = 0.

A model of one weight, ŷ = sigmoid(w·x), on labels that are the sign of x, one in ten of them wrong (Eq. 11). A gradient
tells the server a tangent; a synthetic set tells it a function that bends as the objective does, and has a minimum.

Sec. 2.2 has two ways to it, and the paper does not say which one Fig. 1 shows. Eq. 7 matches the objective itself, at
weights drawn in the ball of radius ρ. Eq. 9, which is what FedDM does, matches the mean features of each class. In this
model the feature is x and the logit w·x: both are lines, so Eq. 9 settles the two class means and nothing else, and the
spread of the examples stays what they began with. Its surrogate is two to ten times nearer than the tangent, by what
was drawn; that of Eq. 7 is the figure as printed. A network's features are no lines, and there Eq. 9 sees more.

Usage: python examples/feddm_surrogate.py [-o PICTURE.png]
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from stages.methods.feddm import BatchMeans, drawn_weights, match
from stages.methods.params.feddm import FedDmEncoding
from stages.methods.surrogate_nets import ImageDescent, LabelledSet, loss_and_gradient, start_weights
from stages.nets.net import Net

REAL, SYNTHETIC, FLIPPED = 100, 20, 0.1
RHO = 5.0
SEED = 0


class OneWeight(nn.Module):
    """Logits (0, w·x): their cross entropy is the binary one of sigmoid(w·x), Eq. 12."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([torch.zeros_like(x), self.weight * x], dim=1)


def model() -> Net:
    return Net(nn.Flatten(), nn.Sequential(OneWeight()))


def as_images(x: np.ndarray, y: np.ndarray) -> LabelledSet:
    """An example is an image of one pixel."""
    return LabelledSet(
        torch.from_numpy(x.astype(np.float32)).reshape(-1, 1, 1, 1), torch.from_numpy(y.astype(np.int64))
    )


def real_data(rng: np.random.Generator) -> LabelledSet:
    """Eq. 11."""
    x, p = rng.normal(size=REAL), rng.random(REAL)
    return as_images(x, (x >= 0) == (p >= FLIPPED))


def first_examples(rng: np.random.Generator) -> LabelledSet:
    """Drawn at random, half of them of each class; the labels stay."""
    return as_images(rng.normal(size=SYNTHETIC), np.arange(SYNTHETIC) >= SYNTHETIC // 2)


def losses(weights: Tensor, examples: LabelledSet) -> Tensor:
    """Eq. 12 at each of the weights."""
    x, y = examples.images.flatten(), examples.labels
    z = weights[:, None] * x
    return (nn.functional.softplus(z) - y * z).mean(dim=1)


def match_objective(
    data: LabelledSet, start: LabelledSet, generator: torch.Generator, steps: int = 2000
) -> LabelledSet:
    """Eq. 7: min_S E_w |f(w) − f̂(S; w)|², one draw of w a step."""
    origin = start_weights(model())
    descent = ImageDescent(start.images, rate=3.0, momentum=0.5)
    for _ in range(steps):
        weights = torch.stack(list(drawn_weights(origin, RHO, generator).values()))
        away = losses(weights, LabelledSet(descent.images, start.labels)) - losses(weights, data)
        loss = away.square().sum()
        descent.step(loss, torch.autograd.grad(loss, [descent.images])[0])
    return descent.result(start.labels).surrogate


def match_features(data: LabelledSet, start: LabelledSet, generator: torch.Generator, steps: int = 200) -> LabelledSet:
    """Eq. 9 by FedDM's own code: class by class, the means of x and of w·x."""
    module = model()
    params = FedDmEncoding(iterations=steps, rho=RHO, batch_size=REAL, image_rate=1.0)
    means = BatchMeans(module, data, params.batch_size, generator)
    return match(module, start, means, params=params, generator=generator, report=lambda *_: None).surrogate


def objective(weights: np.ndarray, examples: LabelledSet) -> np.ndarray:
    """The mean loss of the examples at each weight."""
    return losses(torch.from_numpy(weights), examples).numpy()


def tangent(weights: np.ndarray, data: LabelledSet) -> np.ndarray:
    """What a gradient at w = 0 tells."""
    module = model()
    value, slope = loss_and_gradient(module, start_weights(module), data)
    return float(value) + float(next(iter(slope.values()))) * weights


@dataclass(frozen=True)
class Curves:
    """Over the ball |w| ≤ ρ: the objective, and three things that stand in for it."""

    weights: np.ndarray
    real: np.ndarray
    stand_ins: dict[str, np.ndarray]

    def error(self, name: str) -> float:
        """Root of the mean squared distance from the objective."""
        return float(np.sqrt(np.mean((self.stand_ins[name] - self.real) ** 2)))

    def minimiser(self, values: np.ndarray) -> float:
        return float(self.weights[np.argmin(values)])


def curves(seed: int = SEED, points: int = 401) -> Curves:
    rng = np.random.default_rng(seed)
    data, start = real_data(rng), first_examples(rng)
    weights = np.linspace(-RHO, RHO, points)
    return Curves(
        weights,
        objective(weights, data),
        {
            "objective matched": objective(weights, match_objective(data, start, torch.Generator().manual_seed(seed))),
            "features matched": objective(weights, match_features(data, start, torch.Generator().manual_seed(seed))),
            "tangent": tangent(weights, data),
        },
    )


def draw(path: Path, found: Curves) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.9), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    titles = {
        "objective matched": "(a) the objective matched, Eq. 7",
        "features matched": "(b) class means matched, Eq. 9",
    }
    for axes, (name, title) in zip(panels, titles.items(), strict=True):
        axes.plot(found.weights, found.real, color="#0072b2", linewidth=2.5, label=f"objective, {REAL} examples")
        axes.plot(
            found.weights,
            found.stand_ins[name],
            "--",
            color="#d55e00",
            linewidth=2,
            label=f"surrogate, {SYNTHETIC} examples",
        )
        axes.plot(found.weights, found.stand_ins["tangent"], ":", color="0.35", linewidth=1.5, label="tangent at 0")
        for values, colour in ((found.real, "#0072b2"), (found.stand_ins[name], "#d55e00")):
            axes.plot([found.minimiser(values)], [values.min()], "o", color=colour, markersize=6)
        axes.plot([0], [found.real[len(found.real) // 2]], "o", color="0.35", markersize=4)
        axes.set(xlabel="w", xlim=(-RHO, RHO), ylim=(0.0, 1.05 * found.real.max()))
        axes.set_title(
            f"{title}\noff by {found.error(name):.3f}, the tangent by {found.error('tangent'):.3f}", fontsize=10
        )
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("loss")
    panels[0].legend(loc="upper right", frameon=False, fontsize=9)
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=120, metadata={"Software": None})


def main() -> None:
    parser = argparse.ArgumentParser(description="FedDM's surrogate of one weight, Fig. 1.")
    parser.add_argument("-o", "--out", type=Path, help="PNG to draw")
    out = parser.parse_args().out
    found = curves()
    print(f"{'':>18} {'error':>7} {'minimiser in |w| ≤ ρ':>21}")
    print(f"{'objective':>18} {'':>7} {found.minimiser(found.real):21.2f}")
    for name, values in found.stand_ins.items():
        print(f"{name:>18} {found.error(name):7.4f} {found.minimiser(values):21.2f}")
    if out is not None:
        draw(out, found)


if __name__ == "__main__":
    main()
