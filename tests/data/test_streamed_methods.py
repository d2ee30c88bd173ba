"""Surrogates and measurements from a streamed dataset: to the byte those of one in memory."""

import pytest

from stages.data.streamed import StreamedImages
from stages.registry import ENCODERS
from stages.surrogates.client import encode_surrogate

QUICK = {
    "fedlap": {"method": "fedlap", "images_per_class": 1, "points": 2, "batches": 2, "image_steps": 1},
    "feddm": {"method": "feddm", "images_per_class": 1, "iterations": 3},
}
RADIUS = {"radius_steps": 2, "radius_examples": 20}
NOISY = {"noise_multiplier": 1.0, "sampling_rate": 0.1}
SETS = [
    {**QUICK["fedlap"], **RADIUS, "batch_size": 8, "calibrate": True, "init": "real"},
    {**QUICK["fedlap"], **RADIUS, "batch_size": 5000, "match": "class", "model_steps": 1, "augment": "flip,crop"},
    {**QUICK["fedlap"], **NOISY, "batch_size": 8},
    {**QUICK["feddm"], "batch_size": 8},
    {**QUICK["feddm"], **NOISY, "count_share": 0.9},
]


@pytest.mark.parametrize("options", SETS)
def test_a_surrogate_is_the_same_to_the_byte(run_copy, streamed, options):
    home = run_copy / "clients/00"
    out = home / "outbox/surrogate.safetensors"

    def surrogate():
        model, data = run_copy / "public/model-0000.safetensors", home / "private/data.parquet"
        encode_surrogate(model, data, out, params=ENCODERS.from_mapping(options), force=True)
        return out.read_bytes()

    in_memory = surrogate()
    streamed()
    assert surrogate() == in_memory


TEST, MODEL, MINE, OTHERS = (
    "public/test.parquet", "public/model-0000.safetensors", "clients/00/private/data.parquet",
    "clients/01/private/data.parquet",
)  # fmt: skip
MEASUREMENTS = {
    "accuracy": [MODEL, TEST, "--confusion", "private/c.png", "--batch-size", "64"],
    "surface": [MODEL, TEST, "--surface", "private/s.png", "--points", "3"],
    "gap": ["", "--gap"],
    "heterogeneity": ["", "--heterogeneity"],
    "matching": [MODEL, MINE, "--matching", "clients/00/outbox/surrogate.safetensors", "--matching-steps", "2"],
    "memorisation": [MINE, OTHERS, "--pairs", "private/p.png"],
    "held out": [MINE, OTHERS, "--held-out", TEST],
}


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_a_measurement_is_the_same_to_the_byte(run_copy, fedsynth, streamed, name):
    if name == "matching":
        params, sent = ENCODERS.from_mapping(QUICK["fedlap"]), run_copy / "clients/00/outbox/surrogate.safetensors"
        encode_surrogate(run_copy / MODEL, run_copy / MINE, sent, params=params)

    def measured():
        given = [run_copy / word if "/" in word or not word else word for word in MEASUREMENTS[name]]
        out = run_copy / "private/m.json"
        code, _, err = fedsynth("evaluate", *given, "-o", out, "--force", "--quiet")
        assert code == 0, err
        return [path.read_bytes() for path in (out, *(run_copy / "private").glob("*.png"))]

    (run_copy / "private").mkdir(exist_ok=True)
    in_memory = measured()
    streamed()
    assert measured() == in_memory


def test_no_more_than_a_batch_is_decoded_at_a_time(run_copy, fedsynth, streamed, monkeypatch):
    sizes = []

    def noted(images, rows, decode=StreamedImages.__getitem__):
        found = decode(images, rows)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(StreamedImages, "__getitem__", noted)
    streamed()
    out = run_copy / "m.json"
    code, _, err = fedsynth("evaluate", run_copy / MODEL, run_copy / TEST, "--batch-size", "50", "-o", out)
    assert code == 0, err
    assert len(sizes) > 1 and max(sizes) == 50
