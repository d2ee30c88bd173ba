"""A sweep: which runs there are and what they are called; run, stopped, gone on with; generators trained once."""

import hashlib
import json
import shutil

import pytest

from artifacts.errors import UsageError
from artifacts.formats.plain_data import parse_yaml
from stages.recipes import sweep as module
from stages.recipes.layers import names
from stages.recipes.recipe import assigned, change, load_recipe
from stages.recipes.sweep import points, run_sweep, with_sweep

TINY = [
    "partition.clients=3",
    "init-model.arch=softmax",
    "init-model.width=null",
    "init-model.depth=null",
    "train-client.local_epochs=1",
    "train-generator.family=vae",
    "train-generator.steps=3",
    "synthesize.count=12",
]


def tiny(*sweeps, rounds=1):
    return with_sweep(change(load_recipe("fedssyn"), TINY, rounds), sweeps, 0.5)


def labels(recipe, seed=0):
    return [point.label for point in points(recipe, seed)]


def digests_of_all(folder):
    files = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}


def digests(folder):
    """But for the record of the recipe, which says the recipe's name."""
    return {name: digest for name, digest in digests_of_all(folder).items() if name != "simulation/recipe.yaml"}


def test_a_sweep_is_the_product_of_its_axes_in_order():
    recipe = load_recipe("fedssyn-comparison")
    expected = [f"synthetic={s},seed={n}" for s in ("none", "own", "shuffled") for n in range(3)]
    assert labels(recipe) == expected
    last = points(recipe, 0)[-1]
    assert (last.recipe.synthetic, last.seed, dict(last.recipe.sweep)) == ("shuffled", 2, {})
    assert last.recipe.section("train-client") == load_recipe("fedssyn").section("train-client")
    assert len(labels(load_recipe("fedssyn-algorithms"))) == 36


@pytest.mark.parametrize(
    ("sweep", "expected"),
    [
        (["train-generator.data_fraction=0.25,1.0"], ["data_fraction=0.25", "data_fraction=1.0"]),
        (["train-client.learning-rate=0.1"], ["learning_rate=0.1"]),
        (["train-generator.batch_size=8", "train-client.batch_size=16"],
         ["train-generator.batch_size=8,train-client.batch_size=16"]),
        (["partition.source=../data/My digits, digits"], ["source=..-data-My-digits", "source=digits"]),
        (["encode.tell_examples=true,false"], ["tell_examples=true", "tell_examples=false"]),
        (["train-client.momentum=null"], ["momentum=null"]),
        (["train-client.algorithm=fedavg,{value: fedprox, train-client.mu: 0.5}"],
         ["algorithm=fedavg", "algorithm=fedprox"]),
    ],
)  # fmt: skip
def test_labels_are_safe_names_of_folders(monkeypatch, sweep, expected):
    monkeypatch.setattr(module, "check", lambda recipe: None)
    found = labels(with_sweep(load_recipe("fedavg"), sweep, None))
    assert found == expected
    assert not any(character in label for label in found for character in "/\\ '\"{}:*?")


def test_a_value_may_set_more_than_its_own_target():
    sweep = ["train-client.algorithm=fedavg,{value: fedprox, train-client.mu: 0.5, rounds: 3}"]
    first, second = points(with_sweep(load_recipe("fedavg"), sweep, None), 0)
    assert ("mu" in first.recipe.section("train-client"), first.recipe.rounds) == (False, 10)
    assert (second.recipe.section("train-client")["mu"], second.recipe.rounds) == (0.5, 3)


def test_the_command_line_goes_over_the_recipe():
    recipe = with_sweep(load_recipe("fedssyn-comparison"), ["seed=7", "rounds=1,2"], 0.5)
    assert labels(change(recipe, ["synthetic=own"], None)) == ["seed=7,rounds=1", "seed=7,rounds=2"]
    assert labels(change(recipe, ["synthetic=own"], 4)) == ["seed=7"]
    assert recipe.target == 0.5
    with pytest.raises(UsageError, match="Give --sweep seed=5"):
        points(recipe, 5)
    assert points(with_sweep(load_recipe("fedavg"), ["rounds=1,2"], None), 5)[1].seed == 5


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--sweep", "seed"], "write key=value,value"),
        (["--sweep", "seed="], "give a list of one value or more, found []"),
        (["--sweep", "seed=[0"], "--sweep seed=[0:"),
        (["--sweep", "nonsense=1"], "sweep over 'nonsense'"),
        (["--sweep", "train-client.nonsense=1"], "unknown parameter 'nonsense'"),
        (["--sweep", "train-client.mu=0.1"], "mu=0.1: train-client: --mu goes with --algorithm fedprox"),
        (["--sweep", "train-client.momentum=a/b,a:b"], "called momentum=a-b. Give each value once"),
        (["--sweep", f"partition.source={'x' * 300}"], "too long for the name of a folder"),
        (["--sweep", "seed=0,1", "--target", "90"], "target must be an accuracy"),
        (["--target", "0.9"], "--target is for the comparison of a sweep"),
    ],
)
def test_what_cannot_be_swept_over_is_reported_and_nothing_is_written(fedsynth, tmp_path, monkeypatch, options, said):
    if "a/b" in str(options):
        monkeypatch.setattr(module, "check", lambda recipe: None)
    code, _, err = fedsynth("run", "fedavg", *options, "-o", tmp_path / "out")
    assert (code, said in err) == (2, True), err
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Own, shuffled and pooled synthetic data for one seed: three points whose generators are the same."""
    folder = tmp_path_factory.mktemp("swept") / "out"
    trained = []
    real = module.finish

    def finish(recipe, out, steps, pool, report):
        trained.append(sum(s.command == "train-generator" and not (out / s.out).exists() for s in steps))
        return real(recipe, out, steps, pool, report)

    patch = pytest.MonkeyPatch()
    patch.setattr(module, "finish", finish)
    summary = run_sweep(tiny("synthetic=own,shuffled,pooled"), folder, seed=3, workers=1)
    patch.undo()
    return folder, summary, trained


def test_every_point_is_a_whole_run_and_the_comparison_names_them(swept):
    from stages.audit import audit

    folder, summary, _ = swept
    names = [f"synthetic={kind}" for kind in ("own", "shuffled", "pooled")]
    assert [run["label"] for run in summary["runs"]] == names
    for name in names:
        assert (folder / name / "metrics/round-0001.json").exists()
        assert audit(folder / name).passed
    written = json.loads((folder / "comparison.json").read_text())
    assert (list(written["runs"]), written["target"]) == (names, 0.5)
    assert (folder / "comparison.csv").read_text().count("\n") == 4
    assert (folder / "comparison.png").read_bytes().startswith(b"\x89PNG")


def test_generators_are_trained_once_and_every_byte_is_as_if_they_were_not(swept, tmp_path, run_on_one_worker):
    folder, _, trained = swept
    assert trained == [3, 0, 0]
    recipe = change(tiny(), ["synthetic=shuffled"], None)
    run_on_one_worker(recipe, tmp_path / "alone", seed=3)
    assert digests(folder / "synthetic=shuffled") == digests(tmp_path / "alone")


def test_pooled_data_is_trained_on_by_a_central_party_alone(swept, fedsynth):
    from artifacts.formats import tensors_file
    from stages.data.dataset_images import load_dataset

    run_folder = swept[0] / "synthetic=pooled"
    update = tensors_file.read(run_folder / "clients/central/private/update-0001.safetensors")
    pool = load_dataset(run_folder / "server/outbox/synthetic-00.parquet")
    assert len(pool.content) == 36
    data = [reference.sha256 for reference in update.metadata.inputs if reference.role == "data"]
    assert data == [pool.sha256]
    assert [p.parent.parent.name for p in run_folder.glob("clients/*/private/update-*")] == ["central"]
    code, _, err = fedsynth("audit", run_folder)
    assert code == 0, err


def test_other_data_or_another_generator_is_not_taken_over(swept, tmp_path):
    from stages.recipes.runner import begin

    donor = swept[0] / "synthetic=own"
    same = change(tiny(), ["synthetic=shuffled"], None)
    noise = {"train-generator.noise_multiplier": 1.0, "train-generator.sampling_rate": 0.1}
    for name, recipe, seed, expected in (
        ("same", same, 3, 3),
        ("other rows", assigned(same, {"partition.alpha": 5.0}), 3, 0),
        ("another seed", same, 4, 0),
        ("charged to a ledger", assigned(same, noise), 3, 0),
    ):
        module.reuse_generators(begin(recipe, tmp_path / name, seed), donor, tmp_path / name)
        assert len(list((tmp_path / name).glob("clients/*/private/generator.safetensors"))) == expected, name
    keys = [point.generator_key() for point in points(tiny("train-generator.steps=3,4", "synthesize.count=5,6"), 0)]
    assert keys[0] == keys[1]
    assert keys[0] != keys[2]


@pytest.mark.slow
def test_a_stopped_sweep_goes_on_and_a_finished_one_does_nothing(swept, tmp_path, fedsynth, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    out = tmp_path / "out"
    shutil.copytree(swept[0], out)
    shutil.rmtree(out / "synthetic=pooled")
    for lost in ("synthetic=shuffled/server/outbox/model-0001.safetensors", "comparison.json"):
        (out / lost).unlink()
    times = {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}
    options = [word for setting in TINY for word in ("--set", setting)]
    options += ["--sweep", "synthetic=own,shuffled,pooled", "--target", "0.5", "--seed", 3, "--workers", 1]
    code, stated, err = fedsynth("run", "fedssyn", *options, "--rounds", 1, "-o", out)
    assert code == 0, err
    for name in ("own", "shuffled", "pooled"):
        assert digests(out / f"synthetic={name}") == digests(swept[0] / f"synthetic={name}"), name
    assert all(path.stat().st_mtime_ns == time for path, time in times.items())
    lines = [line for line in stated.splitlines() if "comparison.json" not in line]
    assert max(map(len, lines)) <= 80
    assert "to 50%" in lines[0]
    assert [line.split()[0] for line in lines[1:4]] == ["synthetic=own", "synthetic=shuffled", "synthetic=pooled"]
    before = digests_of_all(out)
    assert fedsynth("run", "fedssyn", *options, "--rounds", 1, "-o", out)[0] == 0
    assert digests_of_all(out) == before
    code, _, err = fedsynth("run", "fedssyn", *options, "--rounds", 1, "-o", out / "synthetic=own")
    assert (code, "holds a single run" in err) == (2, True)


def test_the_error_of_a_point_names_the_point(tmp_path, fedsynth):
    code, _, err = fedsynth("run", "fedavg", "--sweep", "partition.clients=5000", "-o", tmp_path / "out")
    assert code == 2
    assert "clients=5000: --scheme iid" in err


def test_one_run_does_not_say_how_many_seeds_the_sweep_has():
    """What a run folder says of itself, and so its page; the recipe goes on saying it of the comparison."""
    for name in names():
        recipe = load_recipe(name)
        said = parse_yaml(recipe.to_yaml())["about"]
        assert " seeds" not in said and said.endswith("."), said
        assert (said == recipe.about) == (" seeds" not in recipe.about)
