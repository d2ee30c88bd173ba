"""Clients by shape and quadrant, on a small dSprites that is drawn here; and columns that will not do."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageDraw

from artifacts.errors import InputError, UsageError
from stages.data.attributes import Attribute, combinations, parse_attributes
from stages.data.dataset_images import load_dataset
from stages.data.params import PartitionParams
from stages.data.sources import load
from stages.partition import partition

SHAPES = ("square", "ellipse", "triangle")
POSITIONS = np.linspace(0.0, 1.0, 8)


def drawn(shape: str, x: float, y: float) -> dict:
    """A white shape, four pixels wide, on black; its corner at (x, y) of what room there is."""
    image = Image.new("L", (16, 16))
    left, top = round(x * 11), round(y * 11)
    box = [left, top, left + 4, top + 4]
    pen = ImageDraw.Draw(image)
    if shape == "square":
        pen.rectangle(box, fill=255)
    elif shape == "ellipse":
        pen.ellipse(box, fill=255)
    else:
        pen.polygon([(left, top + 4), (left + 4, top + 4), (left + 2, top)], fill=255)
    sink = io.BytesIO()
    image.save(sink, "PNG")
    return {"bytes": sink.getvalue(), "path": None}


@pytest.fixture(scope="module")
def sprites(tmp_path_factory):
    """Every shape at every one of 8 × 8 positions, five times over: 960 rows."""
    rows = [(shape, x, y) for shape in SHAPES for x in POSITIONS for y in POSITIONS for _ in range(5)]
    rows = [rows[index] for index in np.random.default_rng(0).permutation(len(rows))]
    columns = {
        "image": [drawn(*row) for row in rows],
        "label": [SHAPES.index(row[0]) for row in rows],
        "shape": pa.array([row[0] for row in rows]).dictionary_encode(),
        "x": [row[1] for row in rows],
        "y": [row[2] for row in rows],
        "number": list(range(len(rows))),
        "odd": [[1]] * len(rows),
        "gaps": [None, *range(len(rows) - 1)],
        "holes": [float("nan"), *([0.0] * (len(rows) - 1))],
    }
    path = tmp_path_factory.mktemp("sprites") / "sprites.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def white(images):
    """Row and column of the middle of what is white, between its ends."""
    found = [np.argwhere(image[0] > 0) for image in images]
    return np.array([(spots.min(axis=0) + spots.max(axis=0)) / 2 for spots in found])


def test_a_client_sees_one_shape_in_one_quadrant(sprites, tmp_path) -> None:
    params = PartitionParams(scheme="attributes", by="shape,x:2,y:2", test_fraction=0.1)
    partition(str(sprites), tmp_path / "run", params=params, seed=0)
    clients = sorted(path.name for path in (tmp_path / "run/clients").iterdir())
    assert clients == sorted(f"{shape}_{x}_{y}" for shape in SHAPES for x in (0, 1) for y in (0, 1))
    total = 0
    for name in clients:
        content = load_dataset(tmp_path / f"run/clients/{name}/private/data.parquet").content
        shape, x, y = name.split("_")
        assert set(content.labels) == {SHAPES.index(shape)}
        # The picture itself: its middle is in the right half of the canvas, both ways.
        middles = white(content.images)
        assert ((middles[:, 1] > 7.5) == (x == "1")).all()
        assert ((middles[:, 0] > 7.5) == (y == "1")).all()
        total += len(content)
    test = load_dataset(tmp_path / "run/public/test.parquet").content
    assert (total, len(test)) == (864, 96)
    # Drawn row by row: every shape and all quadrants are in the test set.
    assert set(test.labels) == {0, 1, 2}
    assert {tuple(middle > 7.5) for middle in white(test.images)} == {(a, b) for a in (0, 1) for b in (0, 1)}


def test_combinations_are_dealt_whole_to_fewer_clients(sprites, tmp_path) -> None:
    params = PartitionParams(scheme="attributes", by="label,x:2", clients=3)
    summary = partition(str(sprites), tmp_path / "run", params=params, seed=0)
    assert summary["clients"] == 3
    assert sorted(path.name for path in (tmp_path / "run/clients").iterdir()) == ["00", "01", "02"]


def test_a_cut_is_at_the_quantiles_and_a_tie_goes_down() -> None:
    by = parse_attributes("v:3")
    assert combinations(by, {"v": list(range(9))}) == tuple("000111222")
    assert combinations(parse_attributes("v:2"), {"v": [1, 1, 1, 5]}) == tuple("0001")
    assert combinations(parse_attributes("v:2"), {"v": [7, 7]}) == ("0", "0")
    assert parse_attributes(" shape , x:2") == (Attribute("shape", None), Attribute("x", 2))


def test_names_that_would_run_together_are_refused() -> None:
    with pytest.raises(ValueError, match="same name"):
        combinations(parse_attributes("a,b"), {"a": ["p_q", "p"], "b": ["r", "q_r"]})


@pytest.mark.parametrize(
    ("by", "said"),
    [
        ("colour", "no one column 'colour' among image, label"),
        ("number", "column 'number' has 960 different values, more than 100; cut numbers into quantiles (number:2)"),
        ("shape:2", "column 'shape' cannot be cut into 2"),
        ("odd", "column 'odd' must hold text or numbers"),
        ("image", "column 'image' must hold text or numbers"),
        ("gaps", "column 'gaps': 1 rows have no value"),
        ("holes:2", "column 'holes' has values that are not numbers (NaN)"),
        ("holes", "column 'holes' has values that are not numbers (NaN)"),
    ],
)
def test_a_column_that_will_not_do_is_reported(fedsynth, sprites, tmp_path, by, said) -> None:
    code, _, err = fedsynth("partition", sprites, "--scheme", "attributes", "--by", by, "-o", tmp_path / "run")
    assert (code, said in " ".join(err.split())) == (3, True), err
    assert not (tmp_path / "run").exists()


def test_only_parquet_has_attributes(tmp_path) -> None:
    params = PartitionParams(scheme="attributes", by="shape")
    with pytest.raises(UsageError, match="--by does not apply to the source digits"):
        partition("digits", tmp_path / "run", params=params, seed=0)


def test_values_that_are_no_names_need_numbered_clients(sprites, tmp_path) -> None:
    table = pq.read_table(sprites, columns=["image", "label"])
    table = table.append_column("ward", pa.array([f"ward/{n % 2}" for n in range(table.num_rows)]))
    pq.write_table(table, tmp_path / "wards.parquet")
    with pytest.raises(InputError, match=r"--by ward: client name 'ward/\d' is not allowed.*--clients N"):
        partition(
            str(tmp_path / "wards.parquet"),
            tmp_path / "run",
            params=PartitionParams(scheme="attributes", by="ward"),
            seed=0,
        )
    assert load(str(tmp_path / "wards.parquet"), by="ward").train.ids[:2] == ("ward/0", "ward/1")
