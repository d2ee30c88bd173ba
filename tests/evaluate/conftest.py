"""A run in which everything is sent: synthetic data, messages, control variates, by some of the clients each round."""

import json
import shutil

import numpy as np
import pytest
import yaml

from artifacts.metadata import Metadata
from stages.data.dataset_images import dataset_params, save_dataset
from stages.data.images import LabelledImages


@pytest.fixture(scope="session")
def shuffled_run(tmp_path_factory, run_on_one_worker):
    """Four clients, two of them a round, SCAFFOLD on a softmax model, ten synthetic images from each; three rounds."""
    from stages.recipes.recipe import change, load_recipe

    folder = tmp_path_factory.mktemp("evaluate") / "shuffled"
    settings = [
        "partition.clients=4",
        "participation=0.5",
        "synthetic=shuffled",
        "train-generator.family=vae",
        "train-generator.steps=3",
        "synthesize.count=10",
        "init-model.arch=softmax",
        "init-model.width=null",
        "init-model.depth=null",
        "train-client.algorithm=scaffold",
        "train-client.local_epochs=1",
    ]
    run_on_one_worker(change(load_recipe("fedssyn"), settings, 3), folder, seed=0)
    return folder


_TINY = ["partition.clients=2", "init-model.arch=softmax", "init-model.width=null", "init-model.depth=null"]


@pytest.fixture(scope="session")
def fedlap_run(tmp_path_factory, run_on_one_worker):
    """FedLAP on a softmax model: two clients with five classes each, three images for each, two rounds."""
    from stages.recipes.recipe import change, load_recipe

    folder = tmp_path_factory.mktemp("evaluate") / "fedlap"
    settings = [
        "encode.images_per_class=3",
        "encode.batches=1",
        "encode.radius_steps=5",
        "encode.lr_schedule=exponential",
        "encode.lr_decay=0.5",
    ]
    run_on_one_worker(change(load_recipe("fedlap"), [*_TINY, *settings], 2), folder, seed=0)
    return folder


@pytest.fixture(scope="session")
def feddm_run(tmp_path_factory, run_on_one_worker):
    """FedDM, one round."""
    from stages.recipes.recipe import change, load_recipe

    folder = tmp_path_factory.mktemp("evaluate") / "feddm"
    settings = ["encode.images_per_class=2", "encode.iterations=3", "aggregate.server_epochs=2"]
    run_on_one_worker(change(load_recipe("feddm"), [*_TINY, *settings], 1), folder, seed=0)
    return folder


@pytest.fixture(scope="session")
def fedlap_dp_run(tmp_path_factory, run_on_one_worker):
    """FedLAP-DP, two rounds of six looks at real data, σ = 2, q = 1/4."""
    from stages.recipes.recipe import change, load_recipe

    folder = tmp_path_factory.mktemp("evaluate") / "fedlap-dp"
    settings = [
        "encode.target_epsilon=null",
        "encode.delta=null",
        "encode.privacy_rounds=null",
        "encode.noise_multiplier=2.0",
        "encode.clip_norm=1.0",
        "encode.points=3",
        "encode.batches=2",
        "encode.image_steps=1",
        "encode.images_per_class=1",
    ]
    run_on_one_worker(change(load_recipe("fedlap-dp"), [*_TINY, *settings], 2), folder, seed=0)
    return folder


@pytest.fixture
def runs(finished_run, tmp_path):
    """Copy the finished run: under a name, with a seed, changes to its recipe, and accuracies as given."""

    def make(label, /, *, seed=None, accuracies=None, planned=None, **recipe):
        folder = tmp_path / label
        shutil.copytree(finished_run, folder)
        record = folder / "simulation/recipe.yaml"
        known = yaml.safe_load(record.read_text())
        rounds = planned or (len(accuracies) - 1 if accuracies else known["rounds"])
        known |= {"rounds": rounds} | recipe | ({} if seed is None else {"seed": seed})
        record.write_text(yaml.safe_dump(known))
        if accuracies is not None:
            for path in (folder / "metrics").glob("round-*.json"):
                path.unlink()
            for number, value in enumerate(accuracies):
                about = {"custody": "public", "round": number, "accuracy": value, "loss": 1.0}
                (folder / f"metrics/round-{number:04}.json").write_text(json.dumps(about))
        return folder

    return make


@pytest.fixture
def dataset(tmp_path):
    """Write images [n, c, h, w] as a private dataset and return its path."""

    def make(name, images, labels=None, classes=("a", "b")):
        labels = np.zeros(len(images), np.int64) if labels is None else np.asarray(labels, np.int64)
        content = LabelledImages(np.asarray(images, np.uint8), labels, tuple(classes))
        about = Metadata(
            kind="dataset",
            stage="partition",
            custody="private",
            client="00",
            params=dataset_params(content),
            versions={"fedsynth": "0"},
        )
        path = tmp_path / f"{name}.parquet"
        save_dataset(path, content, about)
        return path

    return make
