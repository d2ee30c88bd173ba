"""What is drawn is what the numbers and the files are: curves, contact sheets, lineage, long lists."""

import base64
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts.formats import tensors_file
from artifacts.metadata import Metadata
from artifacts.places import RunFolder
from stages.data.dataset_images import save_dataset
from stages.data.images import LabelledImages
from stages.data.png import decode_png
from stages.report.charts import Chart, Series, nice_ticks, svg
from stages.report.lineage_graph import LineageReader
from stages.report.lineage_picture import sentences
from stages.report.sent_files import SentFile, read_sent, table, totals_by_round
from stages.report.sheets import sheets


@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e9), st.integers(2, 8), st.booleans())
def test_ticks_are_round_few_and_within(low, span, most, whole):
    ticks = nice_ticks(low, low + span, most, whole=whole)
    assert len(ticks) <= most + 1
    assert all(low - 1e-6 * span - 1e-9 <= tick <= low + span * (1 + 1e-6) + 1e-9 for tick in ticks)
    steps = np.diff(ticks)
    if len(steps):
        assert np.allclose(steps, steps[0], atol=1e-9)
        leading = f"{steps[0]:.3e}"[0]
        assert whole or leading in "125"
    assert not whole or all(tick == int(tick) for tick in ticks)


def test_a_curve_goes_through_its_points():
    points = [(0, 0.1), (1, 0.5), (4, 0.9)]
    drawn = str(
        svg(
            Chart(
                name="c", title="t", summary="s", x_label="x", y_label="y", series=[Series("a", points)],
                x_words=str, y_words=str, y_top=1.0,
            )
        )
    )  # fmt: skip
    path = re.search(r'class="line s0" d="([^"]*)"', drawn)[1]
    places = np.array([[float(n) for n in part.split()] for part in re.split("[ML]", path)[1:]])
    # A straight relation between values and places, in both directions: three points fix it and test it.
    for axis, values in enumerate(np.array(points, float).T):
        slope = (places[-1, axis] - places[0, axis]) / (values[-1] - values[0])
        assert np.allclose(places[:, axis], places[0, axis] + slope * (values - values[0]), atol=0.06)
        assert (slope > 0) == (axis == 0), "up is less in a picture"
    zero = float(re.search(r'class="axis" x1="[\d.]+" y1="([\d.]+)"', drawn)[1])
    top = 2 * places[1, 1] - zero  # 0.5 is half way between 0 and 1
    assert 0 < top < 30


def sent(**changes):
    fields = {
        "who": "00", "file": "message-0001.safetensors", "kind": "message", "round": 1, "size": 10,
        "disclosures": ("update",), "events": (), "picked": False, "sha256": "",
    }  # fmt: skip
    return SentFile(**(fields | changes))


def test_of_a_long_list_rounds_that_are_alike_are_one_row_and_nothing_is_lost():
    files = [sent(file=f"message-{r:04}.safetensors", round=r, size=10 if r != 30 else 11) for r in range(1, 61)]
    rows = table(files, None)
    assert [(row.rounds, row.count, row.size) for row in rows] == [("1–29", 29, 290), ("30", 1, 11), ("31–60", 30, 300)]
    assert len(table(files[:40], None)) == 40
    totals = list(totals_by_round([*files, sent(who="01", round=30, size=5)]))
    assert len(totals) == 60
    assert totals[29] == {"round": 30, "clients": 2, "files": 2, "bytes": 16, "kinds": ["message"]}


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({}, "∞"),
        ({"disclosures": ()}, "∞"),
        ({"kind": "secagg-keys", "disclosures": ()}, "0"),
        ({"who": "server"}, "–"),
        ({"disclosures": (), "events": ({"unit": "nonsense"},)}, "not understood"),
    ],
)
def test_a_file_without_noise_is_never_shown_as_cheap(changes, shown):
    assert table([sent(**changes)], 1e-5)[0].epsilon == shown


def decoded(sheet):
    return decode_png(base64.b64decode(sheet.source.partition(",")[2]))


def test_a_sheet_shows_the_pixels_that_were_sent(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (7, 3, 4, 5), np.uint8)
    labels = np.array([2, 0, 1, 1, 0, 2, 2])
    outbox = tmp_path / "clients/00/outbox"
    metadata = Metadata(
        kind="dataset", stage="synthesize", custody="outbound", client="00", versions={},
        params={"num_classes": 3, "channels": 3, "height": 4, "width": 5, "class_names": ["a", "b", "c"]},
        disclosures=("derived_images",),
    )  # fmt: skip
    save_dataset(outbox / "synthetic.parquet", LabelledImages(images, labels, ("a", "b", "c")), metadata)
    run = RunFolder(tmp_path)
    (sheet,), every = sheets(run, {"00": read_sent(run.client("00"))})
    assert every == 1 and "7 images" in sheet.detail and "client 00" in sheet.caption
    canvas = decoded(sheet)
    cells = np.stack([canvas[:, :, 6 * i : 6 * i + 5] for i in range(7)])
    assert np.array_equal(cells, images[np.argsort(labels, kind="stable")])
    assert (canvas[:, :, 5::6] == 128).all()
    assert (sheet.width, sheet.height) == (41 * 7, 4 * 7)


def test_synthetic_sets_are_shown_of_the_first_and_the_last_round(private_run):
    run = RunFolder(private_run)
    found, every = sheets(run, {name: read_sent(run.client(name)) for name in ("00", "01")})
    assert every == len(found) == 4
    assert [sheet.caption for sheet in found[:2]] == [
        "surrogate from client 00, round 1", "surrogate from client 00, round 2",
    ]  # fmt: skip
    pixels = tensors_file.read(private_run / "clients/00/outbox/surrogate-0001.safetensors").tensors["images"]
    first = decoded(found[0])[:, :8, :8]
    expected = np.clip((pixels[0] + 1) / 2, 0, 1)  # classes come in order
    assert np.abs(first / 255 - expected).max() < 0.5 / 255 + 1e-6


def edges(run, round, *, private):
    folder = RunFolder(run)
    places = {name: folder.client(name) for name in folder.client_names()} | {"server": folder.server}
    reader = LineageReader(folder, {who: read_sent(place) for who, place in places.items()}, private=private)
    graph = reader.graph(round)
    return graph, {(graph.nodes[a].label, graph.nodes[a].who, graph.nodes[b].label) for a, b in graph.edges}


def test_the_lineage_of_a_round_is_that_of_its_files(finished_run):
    _, found = edges(finished_run, 2, private=False)
    clients = ("00", "01", "02")
    assert found == {
        *(("private update", client, "message-0002") for client in clients),
        *(("message-0002", client, "model-0002") for client in clients),
        ("model-0001", "server", "message-0002"),
        ("model-0001", "server", "model-0002"),
    }


def test_with_the_keys_the_lineage_goes_on_to_the_data(finished_run):
    graph, found = edges(finished_run, 1, private=True)
    assert {("data", "01", "update-0001"), ("update-0001", "01", "message-0001")} <= found
    assert not any("private update" in label for label, _, _ in found)
    layers = graph.layers()
    assert all(layers[start] < layers[end] for start, end in graph.edges)


def test_many_clients_are_drawn_as_one(finished_run):
    from stages.report.lineage_graph import Graph, Node

    graph, count = Graph(), 7
    graph.nodes["m"] = Node("m", "model-0001", "server", "model", "server")
    for number in range(count):
        key = f"c{number}"
        graph.nodes[key] = Node(key, "message-0001", f"{number:02}", "message", "left")
        graph.edges[key, "m"] = None
    assert sentences(graph) == [("model-0001 (server)", "message-0001 (7 clients, 7 files)")]
