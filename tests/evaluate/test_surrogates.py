"""Synthetic sets over rounds: radii, steps, pixels and bytes against numbers worked by hand; pictures; refusals."""

import io
import json
import shutil

import numpy as np
import pytest
from PIL import Image

from artifacts.formats import tensors_file
from artifacts.metadata import Metadata
from stages.evaluate.surrogates import pixel_distribution
from stages.pictures.surrogate_sheet import SheetRound, surrogate_sheet
from stages.pictures.surrogates import spread

PNG = b"\x89PNG\r\n\x1a\n"


def test_pixels_by_hand():
    """0 … 100 in steps of one: the quantiles are the numbers themselves; all but 0 and 1 lie beyond 1."""
    found = pixel_distribution(np.arange(101, dtype=np.float32).reshape(101, 1, 1, 1))
    assert [found[name] for name in ("min", "p01", "p05", "p25", "median", "p75", "p95", "p99", "max")] == [
        0, 1, 5, 25, 50, 75, 95, 99, 100,
    ]  # fmt: skip
    assert found["mean"] == 50
    assert found["std"] == pytest.approx(np.sqrt((101**2 - 1) / 12), abs=1e-6)
    assert found["beyond"] == pytest.approx(99 / 101, abs=1e-6)
    assert pixel_distribution(np.array([-1.0, 1.0, -1.5, 0.0]))["beyond"] == 0.25  # −1 and 1 are still colours


@pytest.fixture
def written_run(tmp_path):
    """Round 1: two clients with radii 2 and 1 and the server's account. Round 2: one client, no radius, no account."""
    root = tmp_path / "run"

    def write(client, round, pixels, radius=None, said=None, labels=None):
        images = np.array(pixels, np.float32).reshape(-1, 1, 1, 2)
        tensors = {"images": images, "labels": np.array(labels or [0] * len(images), np.int64)}
        tensors |= {} if radius is None else {"radius": np.array(radius, np.float32)}
        about = Metadata(
            kind="surrogate", stage="encode", method="fedlap", custody="outbound", client=said or client, round=round,
            params={}, versions={"fedsynth": "0"}, disclosures=("derived_images",),
        )  # fmt: skip
        tensors_file.write(root / f"clients/{client}/outbox/surrogate-{round:04}.safetensors", tensors, about)

    write("00", 1, [0.0, 3.0, -2.0, 0.5], radius=2.0, labels=[4, 7])
    write("01", 1, [1.0, -1.0], radius=1.0)
    write("01", 2, [0.25, 0.25])
    stated = {"custody": "server", "round": 1, "radius": 1.0, "radii": {}, "steps": 7, "distance": 0.875, "trace": []}
    path = root / "server/private/descent-0001.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({**stated, "left_out": ["one file"]}))
    return root, write


def test_a_run_by_hand(fedsynth_json, written_run, tmp_path):
    root, _ = written_run
    out = root / "server/private/surrogates.json"
    found = fedsynth_json("evaluate", root, "--surrogates", "-o", out)
    assert (found["custody"], found["method"], list(found["rounds"])) == ("server", "fedlap", ["1", "2"])
    first, second = found["rounds"].values()
    assert (first["clients"], first["images"]) == (2, 3)
    assert [first[f"radius_{name}"] for name in ("min", "median", "max")] == [1.0, 1.5, 2.0]
    server = ("server_radius", "server_steps", "server_distance", "left_out")
    assert [first[name] for name in server] == [1.0, 7, 0.875, 1]
    assert [second[name] for name in (*server, "radius_min", "radius_max")] == [None] * 6
    one, other = first["by_client"]["00"], first["by_client"]["01"]
    assert (one["radius"], one["images"], other["images"]) == (2.0, {"4": 1, "7": 1}, {"0": 1})
    assert (one["pixels"]["beyond"], other["pixels"]["beyond"], first["pixels"]["beyond"]) == (0.5, 0.0, 0.333333)
    assert (one["pixels"]["min"], one["pixels"]["median"], one["pixels"]["mean"]) == (-2.0, 0.25, 0.375)
    assert second["by_client"]["01"]["pixels"]["std"] == 0.0
    sizes = {path: path.stat().st_size for path in root.glob("clients/*/outbox/surrogate-*")}
    assert found["bytes"] == sum(sizes.values())
    assert one["bytes"] == sizes[root / "clients/00/outbox/surrogate-0001.safetensors"]
    assert first["bytes"] + second["bytes"] == found["bytes"]
    assert json.loads(out.read_text()) == {key: value for key, value in found.items() if key != "out"}
    chosen = fedsynth_json("evaluate", root, "--surrogates", "--round", "2", "-o", tmp_path / "b.json")
    assert list(chosen["rounds"]) == ["2"]


@pytest.mark.parametrize("which", ["fedlap_run", "feddm_run", "fedlap_dp_run"])
def test_real_runs_and_their_pictures(fedsynth, which, tmp_path, monkeypatch, request):
    """Numbers as numpy has them; a table, pictures that are the same each time, whatever the sets bring with them."""
    monkeypatch.setenv("COLUMNS", "80")
    run, drawn = request.getfixturevalue(which), []
    for turn in ("a", "b") if which == "feddm_run" else ("a",):
        out, picture, sheet = (tmp_path / f"{turn}.{end}" for end in ("json", "png", "sheet.png"))
        words = ["-o", out, "--picture", picture, "--sheet", sheet]
        code, shown, err = fedsynth("evaluate", run, "--surrogates", *words)
        assert code == 0, err
        assert max(map(len, shown.splitlines())) <= 80
        drawn.append((picture.read_bytes(), sheet.read_bytes()))
        assert all(content.startswith(PNG) for content in drawn[-1])
    assert drawn[0] == drawn[-1]
    values = json.loads((tmp_path / "a.json").read_text())["rounds"]["1"]
    descent = json.loads((run / "server/private/descent-0001.json").read_text())
    files = [tensors_file.read(path) for path in sorted(run.glob("clients/*/outbox/surrogate-0001.safetensors"))]
    pixels = np.concatenate([file.tensors["images"].ravel() for file in files]).astype(float)
    assert (values["server_steps"], values["images"]) == (
        descent["steps"],
        sum(len(f.tensors["labels"]) for f in files),
    )
    assert values["pixels"]["p95"] == pytest.approx(np.quantile(pixels, 0.95), abs=1e-6)
    assert values["pixels"]["beyond"] == pytest.approx(np.mean(abs(pixels) > 1), abs=1e-6)
    radii = [float(file.tensors["radius"]) for file in files if "radius" in file.tensors]
    assert len(radii) == (2 if which == "fedlap_run" else 0)
    assert values["radius_min"] == (pytest.approx(min(radii), abs=1e-6) if radii else None)
    assert values["server_radius"] == (pytest.approx(descent["radius"], abs=1e-6) if "radius" in descent else None)


def test_a_picture_without_the_server_and_without_radii(fedsynth, written_run, tmp_path):
    root, _ = written_run
    picture = tmp_path / "p.png"
    code, _, err = fedsynth(
        "evaluate", root, "--surrogates", "--round", "2", "-o", tmp_path / "x", "--picture", picture
    )
    assert code == 0, err
    with Image.open(picture) as alone:
        height = alone.height
    fedsynth("evaluate", root, "--surrogates", "-o", tmp_path / "y", "--picture", picture, "--force")
    with Image.open(picture) as both:
        assert both.height > 1.5 * height  # the row of radii and steps is there only where someone told them


def test_what_the_sheet_shows():
    """Pixels as they are between −1 and 1, black or white beyond; a row for each client and class, images in order."""
    images = np.stack([np.full((1, 8, 8), value, np.float32) for value in (-5.0, 0.0, 9.0)])
    sets = {"00": (images, np.array([3, 3, 3])), "01": (images[:1], np.array([1]))}
    with Image.open(io.BytesIO(surrogate_sheet([SheetRound(1, sets)]))) as sheet:
        shown = np.asarray(sheet.convert("L"))
    cells = [shown[84 + 20, 160 + 20 + column * 44] for column in range(3)]  # the middle of 40 pixels, 4 between
    assert cells == [0, 128, 255]
    assert shown[84 + 44 + 20, 160 + 20] == 0
    assert shown[84 + 44 + 20, 160 + 20 + 44] == 255  # the other client has no second image


def test_many_rounds_are_thinned():
    assert spread([1, 2, 3], 5) == [1, 2, 3]
    assert spread(list(range(1, 61)), 4) == [1, 20, 40, 60]


def test_refusals(fedsynth, finished_run, written_run, tmp_path):
    root, write = written_run
    out = tmp_path / "c.json"
    cases = [
        ([root, "--surrogates", "--round", "3"], 3, "has the sets of rounds 1 to 2"),
        ([tmp_path / "nowhere", "--surrogates"], 3, "is no run folder"),
        ([finished_run, "--surrogates"], 3, "no client of this run sends synthetic sets"),
        ([root, root, "--surrogates"], 2, "takes one run folder, found 2"),
        ([root, "--surrogates", "--gap"], 2, "are two measurements: ask for one"),
        ([root, "--surrogates", "--csv", "x"], 2, "--csv goes with `evaluate RUN…`"),
        ([root, "--sheet", "x"], 2, "--sheet goes with `evaluate RUN --surrogates`"),
    ]
    for arguments, wanted, said in cases:
        code, _, err = fedsynth("evaluate", *arguments, "-o", out)
        assert (code, said in err) == (wanted, True), err
        assert not out.exists()
    for folder in ("outbox", "public", "metrics"):
        place = tmp_path / folder / "x"
        for words in (["-o", place], ["-o", out, "--picture", place], ["-o", out, "--sheet", place]):
            code, _, err = fedsynth("evaluate", root, "--surrogates", *words)
            assert (code, "a file that is server may not be in" in err) == (2, True), err
    write("02", 2, [0.0, 0.0], said="00")
    code, _, err = fedsynth("evaluate", root, "--surrogates", "-o", out)
    assert (code, "is a set of client '00', round 2, not of '02', round 2" in err) == (3, True), err
    shutil.rmtree(root / "clients/02")
    (root / "server/private/descent-0002.json").write_text('{"round": 1}')
    code, _, err = fedsynth("evaluate", root, "--surrogates", "-o", out)
    assert (code, "is no account that aggregate wrote (it is of round 1)" in err) == (3, True), err
    assert not out.exists()


def test_it_does_not_import_torch(without_torch, written_run, tmp_path):
    root, _ = written_run
    without_torch(root, "--surrogates", "-q", "-o", tmp_path / "c.json")
