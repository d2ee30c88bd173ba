"""What does not belong is refused by name, with the exit code that pipelines see, and nothing is written."""

import shutil
import zlib

import numpy as np
import pytest

from artifacts.formats import dataset_file
from stages.data.png import encode_png


@pytest.fixture(name="refused")
def refused_to_shuffle(federation, refused):
    """Call `shuffle`, which must refuse; returns the text."""

    def call(code, *arguments, parts=2, out=None):
        line = ["shuffle", *arguments, "--parts", parts, "-o", out or federation.outbox]
        return refused(federation.root, *line, code=code)

    return call


@pytest.mark.parametrize("parts", [0, -3])
def test_fewer_parts_than_one(federation, refused, parts):
    assert "--parts" in refused(2, *federation.send_all(3).sent, parts=parts)


def test_more_parts_than_rows(federation, refused):
    federation.send_all(3, 4)
    assert "--parts 8 is more than the 7 rows" in refused(2, *federation.sent, parts=8)


def test_no_rows(federation, refused):
    assert "no rows to shuffle" in refused(3, *federation.send_all(0, 0).sent)
    assert "no rows to shuffle" in refused(3, federation.sent[0], parts=1)


def test_no_dataset_at_all(federation, refused):
    assert "SYN" in refused(2)


@pytest.mark.parametrize("name", ["out", "outbox/parts"])
def test_an_out_that_is_no_outbox(federation, refused, name):
    federation.send_all(3, 4)
    text = refused(2, *federation.sent, out=federation.root / "server" / name)
    assert "must be a folder named outbox/" in text


def test_the_outbox_of_a_contributor(federation, refused):
    federation.send_all(3, 4)
    assert "came out of" in refused(2, *federation.sent, out=federation.sent[1].parent)


def test_a_part_that_exists(federation, refused, fedsynth):
    federation.send_all(3, 4)
    assert fedsynth("shuffle", *federation.sent, "--parts", 2, "-o", federation.outbox)[0] == 0
    assert "synthetic-00.parquet already exists. Add --force" in refused(3, *federation.sent, "--seed", 1)
    federation.parts()[0].unlink()
    assert "synthetic-01.parquet already exists" in refused(3, *federation.sent, "--seed", 1)
    assert fedsynth("shuffle", *federation.sent, "--parts", 2, "-o", federation.outbox, "--force")[0] == 0


def test_the_parts_of_an_earlier_shuffle_into_more(federation, refused, fedsynth):
    """Else one client would get rows of both."""
    federation.send_all(3, 4)
    assert fedsynth("shuffle", *federation.sent, "--parts", 3, "-o", federation.outbox)[0] == 0
    for path in federation.parts()[:2]:
        path.unlink()
    assert "holds synthetic-02.parquet" in refused(3, *federation.sent)


def test_two_files_of_one_client(federation, refused):
    federation.send("00", 3)
    federation.send("00", 3, path=federation.path("00", "again.parquet"))
    text = refused(3, *federation.sent)
    assert "again.parquet and" in text and "both from client '00'" in text
    assert "both from client '00'" in refused(3, federation.sent[0], federation.sent[0])


def test_private_data(federation, refused):
    federation.send_all(3)
    path = federation.root / "clients" / "01" / "private" / "data.parquet"
    federation.send("01", 3, path=path, custody="private", disclosures=())
    text = refused(3, *federation.sent)
    assert f"{path} is private data, which never leaves its client" in text


@pytest.mark.parametrize("custody", ["server", "public"])
def test_a_dataset_that_no_client_sent(federation, refused, custody):
    federation.send("00", 3, path=federation.root / "d.parquet", custody=custody)
    assert f"is a {custody} dataset; one that a client sent (outbound) is needed" in refused(3, *federation.sent)


def test_a_part_is_not_shuffled_again(federation, refused, fedsynth):
    federation.send_all(3, 4)
    assert fedsynth("shuffle", *federation.sent, "--parts", 2, "-o", federation.outbox)[0] == 0
    other = federation.root / "other" / "outbox"
    assert "is a downlink dataset" in refused(3, *federation.parts(), out=other)


def test_a_file_in_the_outbox_of_another_client(federation, refused):
    federation.send_all(3)
    federation.send("07", 3, path=federation.path("01"))
    text = refused(3, *federation.sent)
    assert "says it is from client '07', but is in the outbox of '01'" in text


def test_a_file_carried_elsewhere_is_taken_at_its_word(federation, fedsynth):
    federation.send_all(3, 4)
    inbox = federation.root / "inbox"
    inbox.mkdir()
    moved = [shutil.copy(path, inbox / f"{number}.parquet") for number, path in enumerate(federation.sent)]
    assert fedsynth("shuffle", *moved, "--parts", 2, "-o", federation.outbox)[0] == 0


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"height": 3}, "height"),
        ({"width": 3}, "width"),
        ({"channels": 3}, "channels"),
        ({"class_names": ["cat", "dog", "cow"]}, "class names"),
        ({"num_classes": 4, "class_names": ["cat", "dog", "owl", "cow"]}, "class names"),
    ],
)
def test_images_or_classes_of_another_kind(federation, refused, changes, what):
    federation.send_all(3)
    params = dataset_file.read_metadata(federation.sent[0]).params
    federation.send("01", 3, params=params | changes)
    text = refused(3, *federation.sent)
    assert f"01/outbox/synthetic.parquet has other {what} than" in text


def test_a_dataset_of_no_rows_is_held_to_the_same(federation, refused):
    params = {"num_classes": 3, "channels": 3, "height": 2, "width": 2, "class_names": ["cat", "dog", "owl"]}
    federation.send("00", 0, params={**params, "labels": "frequency"})
    federation.send("01", 3)
    assert "has other channels than" in refused(3, *federation.sent)
    assert "has other channels than" in refused(3, *reversed(federation.sent))


def test_another_round(federation, refused):
    federation.send("00", 3, round=1)
    federation.send("01", 3, round=2)
    assert "is of another round than" in refused(3, *federation.sent)


def test_another_kind_of_file(federation, refused, forge):
    federation.send_all(3)
    model = forge.write_tensors(federation.root / "m.safetensors")
    assert "does not end as a Parquet file does" in refused(3, *federation.sent, model)
    assert "no such file" in refused(3, *federation.sent, federation.root / "none.parquet")


def test_a_damaged_file_wherever_it_is_hurt(federation, refused, forge):
    federation.send_all(3, 30)
    path = federation.sent[1]
    data = path.read_bytes()
    for position in (1, 40, len(data) // 3, len(data) // 2, len(data) - 500, len(data) - 3):
        path.write_bytes(forge.flip(data, position, 2))
        assert f"{path} is not a whole fedsynth artifact" in refused(3, *federation.sent)
    path.write_bytes(data[:-1])
    assert "01/outbox/synthetic.parquet" in refused(3, *federation.sent)


def chunk(name, body):
    return len(body).to_bytes(4, "big") + name + body + zlib.crc32(name + body).to_bytes(4, "big")


def marked(png):
    return png[:33] + chunk(b"tEXt", b"from\0hospital-a") + png[33:]


def with_idat(png, change):
    """The PNG with another compressed stream, its checksum recomputed."""
    length = int.from_bytes(png[33:37], "big")
    return png[:33] + chunk(b"IDAT", change(png[41 : 41 + length])) + png[45 + length :]


def test_images_that_are_not_what_the_file_says(federation, refused, make_picture):
    """Under a valid seal: a mark in a PNG would tell a row's origin, another shape would break who trains on it."""
    federation.send_all(3)
    wide = encode_png(np.zeros((2, 3, 1), np.uint8))
    bad = {
        "the chunk tEXt": marked(make_picture(1)),
        "is 1×2×3, but the file says 1×2×2": wide,
        "is 3×2×2, but the file says 1×2×2": make_picture(1, channels=3),
        "not a PNG": b"GIF89a",
        "truncated PNG": make_picture(1)[:-3],
        "follow its IEND": make_picture(1) + b"hidden",
        "does not hold exactly": with_idat(make_picture(1), lambda stream: stream + b"hospital-a"),
        "cannot be inflated": with_idat(make_picture(1), lambda _: b"hospital-a"),
        "an empty IDAT": with_idat(make_picture(1), lambda _: b""),
    }
    for number, (what, png) in enumerate(bad.items()):
        path = federation.path("01", f"{number}.parquet")
        federation.send("01", 3, path=path, pngs=[make_picture(5), png, make_picture(6)])
        text = refused(3, federation.sent[0], path)
        assert f"{path}, row 1: " in text and what in text
