"""What an insider says or leaves unsaid in a file's metadata, with digests, seals and a ledger that fit."""

import json

import numpy as np
from tampering.run import case

from artifacts.digests import ZEROS


@case("params", "bits in the order of the metadata")
def _(run):
    run.forged("message", text=lambda line: json.dumps(dict(reversed(json.loads(line).items())), separators=(",", ":")))


@case("params", "an extra key in the metadata")
def _(run):
    run.forged("message", fields=lambda about: about.update(patient="Mueller"))


@case("params", "an extra parameter")
def _(run):
    run.rewrite("message", params={**run.about("message").params, "patient": "Mueller"})


@case("params", "an extra parameter of a surrogate")
def _(run):
    run.rewrite("surrogate", params={**run.about("surrogate").params, "patient": 4711})


@case("params", "an extra parameter of a dataset")
def _(run):
    run.rewrite_dataset(params={**run.about("dataset").params, "patient": 4711})


@case("params", "names of patients as names of classes")
def _(run):
    run.rewrite_dataset(params={**run.about("dataset").params, "class_names": [f"patient {n}" for n in range(10)]})


@case("params", "a message among the versions of libraries")
def _(run):
    run.rewrite("message", versions={"fedsynth": "0", "mueller": "1968.02.29"})


@case("params", "a message in the name of a processor")
def _(run):
    run.rewrite("message", arithmetic="cpu: float32, one thread, AVX2, mueller 1968-02-29")


@case("params", "a seed in the metadata")
def _(run):
    run.forged("message", fields=lambda about: about.update(seed=7))


@case("params", "a count that is not declared")
def _(run):
    run.forged("surrogate", fields=lambda about: about.update(counts={"num_examples": 480}))


@case("params", "a stage that makes no such file")
def _(run):
    run.rewrite("message", stage="shuffle")


@case("disclosures", "a message that declares nothing")
def _(run):
    run.rewrite("message", disclosures=(), counts={})


@case("disclosures", "a surrogate whose radius is not declared")
def _(run):
    stated = run.about("surrogate").disclosures
    run.rewrite("surrogate", disclosures=tuple(name for name in stated if name != "radius"))


@case("disclosures", "a surrogate with norms of layers that are not declared")
def _(run):
    run.rewrite("surrogate", {"norms": np.ones(2, np.float32)})


@case("disclosures", "a proxy whose layer norms are not declared")
def _(run):
    run.rewrite("proxy", disclosures=("derived_images", "update"))


@case("disclosures", "a dataset whose class counts are not declared")
def _(run):
    run.rewrite_dataset(disclosures=("class_set", "derived_images"))


@case("disclosures", "a picked dataset with noise that declares nothing")
def _(run):
    picked = {**run.about("dataset").params, "picked": True}
    run.rewrite_dataset(params=picked, disclosures=(), privacy=run.events())


def _with_event(run, **changes):
    (event,) = run.events()
    run.rewrite("message", file="noised-0001.safetensors", privacy=({**event, **changes},))


@case("events", "more noise claimed than was reserved")
def _(run):
    _with_event(run, noise_multiplier=8.0)


@case("events", "an event that never happened")
def _(run):
    _with_event(run, id=ZEROS)


@case("events", "an event that nobody understands")
def _(run):
    _with_event(run, mechanism="magic")


@case("budget", "a file without noise beside a budget")
def _(run):
    (run.private / "budget.yaml").write_text("epsilon: 50\ndelta: 1e-5\nunit: record\n")


@case("budget", "more spent than the budget allows")
def _(run):
    (run.private / "budget.yaml").write_text("epsilon: 0.01\ndelta: 1e-5\nunit: record\n")
