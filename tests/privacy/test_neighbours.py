"""Neighbouring datasets, one record apart: all that leaves is alike but for the values that noise covers.

Names and sizes of files, their metadata and events, ledger entries, exit codes and what is printed as an error are
outputs too (privacy contract, rule 11). FedDM is not compared here: its number of images follows from
noised counts.
"""

import json

import numpy as np
import pytest

from artifacts.formats import dataset_file, tensors_file
from artifacts.identity import keys
from artifacts.metadata import Metadata
from stages.data.dataset_images import dataset_params, save_dataset
from stages.data.images import LabelledImages
from stages.init_model import init_model
from stages.keygen import settle
from stages.registry import NETWORKS

NOISE = ["--noise-multiplier", 1, "--sampling-rate", 0.5]
CLIENTS = ["--clip-norm", 1, "--noise-multiplier", 1, "--least-clients", 2]
PIPELINES = {
    "records": [
        ["train-client", "{model}", "{data}", "--local-steps", 2, "--batch-size", 4, *NOISE,
         "-o", "{private}/u.safetensors"],
        ["encode", "{model}", "{private}/u.safetensors", "-o", "{outbox}/m.safetensors"],
    ],
    "clients": [
        ["train-client", "{model}", "{data}", "-o", "{private}/u.safetensors"],
        ["encode", "{model}", "{private}/u.safetensors", *CLIENTS, "-o", "{outbox}/m.safetensors"],
    ],
    "generator": [
        ["train-generator", "{data}", "--family", "vae", "--steps", 2, "--batch-size", 4, *NOISE,
         "-o", "{private}/g.safetensors"],
        ["synthesize", "{private}/g.safetensors", "--count", 6, "-o", "{outbox}/s.parquet"],
    ],
    "fedlap": [
        ["encode", "{model}", "{data}", "--method", "fedlap", "--images-per-class", 1, "--image-steps", 2, *NOISE,
         "-o", "{outbox}/s.safetensors"],
    ],
}  # fmt: skip


def records(digits, kind):
    """Twelve digits of two classes; and the same with one more."""
    rows = np.flatnonzero(digits.labels < 2)[:12]
    images, labels = digits.images[rows], digits.labels[rows]
    if kind == "a new class":
        images, labels = np.append(images, digits.images[digits.labels == 9][:1], 0), np.append(labels, 9)
    elif kind == "an outlier":
        images, labels = np.append(images, np.full_like(images[:1], 255), 0), np.append(labels, 0)
    elif kind == "nobody":
        images, labels = images[:0], labels[:0]
    return LabelledImages(images, labels, digits.class_names)


def outputs(root, digits, kind, pipeline, fedsynth, weights=1.0):
    """All that anybody but the client can see of a pipeline on this data."""
    home = root / "clients/a"
    settle(home / "private/client.key", keys.Key(bytes(range(32))), force=False)
    (home / "outbox").mkdir()
    data, model = home / "private/data.parquet", root / "public/model-0000.safetensors"
    content = records(digits, kind)
    about = Metadata(kind="dataset", stage="partition", custody="private", client="a", versions={},
                     params=dataset_params(content))  # fmt: skip
    save_dataset(data, content, about)
    init_model(data, model, params=NETWORKS.from_mapping({"arch": "mlp", "width": 6}), seed=1)
    if weights != 1:
        start = tensors_file.read(model)
        crafted = {name: np.sign(tensor) * np.float32(weights) for name, tensor in start.tensors.items()}
        tensors_file.write(model, crafted, start.metadata, force=True)
    names = {"model": model, "data": data, "private": home / "private", "outbox": home / "outbox"}
    said = []
    for command in PIPELINES[pipeline]:
        code, _, err = fedsynth(*(str(word).format(**names) for word in command), "--quiet")
        said.append((code, err.replace(str(root), "")))
    files = {path.name: (size_of(path), seen(path)) for path in sorted((home / "outbox").iterdir())}
    ledger = [json.loads(line) for line in (home / "egress.jsonl").read_text().splitlines()]
    kept = [sorted(path.name for path in (home / "private").iterdir())]
    return said, files, [masked(entry) for entry in ledger], kept


def size_of(path):
    """Of tensors; that of PNGs is a function of the noised pixels in them."""
    return None if path.suffix == ".parquet" else path.stat().st_size


def seen(path):
    read = dataset_file.read_metadata if path.suffix == ".parquet" else lambda p: tensors_file.read_header(p)[0]
    return masked(read(path).to_json(payload_sha256="", seal_sha256=""))


def masked(value):
    """Without what is a keyed digest of the noised values or a commitment: those differ, and tell nothing."""
    if isinstance(value, dict):
        hidden = ["id", "sha256", "commitment", "salt", "previous"]
        hidden += ["bytes"] if str(value.get("file")).endswith(".parquet") else []
        return {name: "…" if name in hidden and name in value else masked(v) for name, v in value.items()}
    return [masked(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_one_record_more_changes_noised_values_alone(tmp_path, digits, fedsynth, pipeline):
    plain = outputs(tmp_path / "d", digits, "as it is", pipeline, fedsynth)
    assert all(code == 0 for code, _ in plain[0]), plain[0]
    assert plain[1], "something leaves"
    kinds = ["a new class", "an outlier"] + (["nobody"] if pipeline != "clients" else [])
    for number, kind in enumerate(kinds):
        assert outputs(tmp_path / f"e{number}", digits, kind, pipeline, fedsynth) == plain, kind


def test_a_client_whose_update_is_not_finite_answers_like_any_other(tmp_path, digits, fedsynth):
    plain = outputs(tmp_path / "d", digits, "as it is", "clients", fedsynth)
    crafted = outputs(tmp_path / "e", digits, "as it is", "clients", fedsynth, weights=1e37)
    for side in (plain, crafted):
        for _, about in side[1].values():
            about["inputs"] = "the model is another one here"
    assert crafted == plain
