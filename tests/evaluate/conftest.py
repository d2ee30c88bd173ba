"""A run in which everything is sent: synthetic data, messages, control variates, by some of the clients each round."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import yaml

from artifacts.metadata import Metadata
from stages.data.dataset_images import dataset_params, save_dataset
from stages.data.images import LabelledImages


@pytest.fixture(scope="session")
def shuffled_run(softmax_run):
    """Four clients, two of them a round, SCAFFOLD on a softmax model, ten synthetic images from each; three rounds."""
    settings = [
        "partition.clients=4",
        "participation=0.5",
        "synthetic=shuffled",
        "train-generator.family=vae",
        "train-generator.steps=3",
        "synthesize.count=10",
        "train-client.algorithm=scaffold",
        "train-client.local_epochs=1",
    ]
    return softmax_run("fedssyn", 3, *settings, label="shuffled")


@pytest.fixture(scope="session")
def fedlap_run(softmax_run):
    """FedLAP on a softmax model: two clients with five classes each, three images for each, two rounds."""
    settings = [
        "partition.clients=2",
        "encode.images_per_class=3",
        "encode.batches=1",
        "encode.radius_steps=5",
        "encode.lr_schedule=exponential",
        "encode.lr_decay=0.5",
    ]
    return softmax_run("fedlap", 2, *settings)


@pytest.fixture(scope="session")
def feddm_run(softmax_run):
    """FedDM, one round."""
    settings = ["encode.images_per_class=2", "encode.iterations=3", "aggregate.server_epochs=2"]
    return softmax_run("feddm", 1, "partition.clients=2", *settings)


@pytest.fixture(scope="session")
def fedlap_dp_run(softmax_run):
    """FedLAP-DP, two rounds of six looks at real data, σ = 2, q = 1/4."""
    settings = [
        "partition.clients=2",
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
    return softmax_run("fedlap-dp", 2, *settings)


@pytest.fixture(scope="session")
def without_torch():
    """Call `evaluate` in a process of its own, which must succeed and not have imported torch."""

    def call(*arguments):
        code = (
            "import sys\nfrom fedsynth_cli.app import run\n"
            f"assert run({['evaluate', *map(str, arguments)]!r}) == 0\nassert 'torch' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)

    return call


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
