"""A folder of class folders: sorted classes, any image format, and nothing skipped in silence."""

from __future__ import annotations

import os
import re

import numpy as np
import pytest
from PIL import Image

from artifacts.errors import InputError, UsageError
from stages.data.sources import load


def put(path, value: int = 0, size: tuple[int, int] = (4, 4), mode: str = "L") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(path)


@pytest.fixture
def pets(tmp_path):
    put(tmp_path / "pets/dog/b.png", 20)
    put(tmp_path / "pets/dog/a.bmp", 10)
    put(tmp_path / "pets/cat/z.tif", 30)
    return tmp_path / "pets"


def test_classes_and_files_come_in_the_order_of_their_names(pets) -> None:
    source = load(str(pets))
    assert source.test is None
    assert source.train.class_names == ("cat", "dog")
    assert source.train.labels.tolist() == [0, 1, 1]
    assert source.train.images[:, 0, 0, 0].tolist() == [30, 10, 20]
    assert source.train.ids is None


def test_train_and_test_folders(tmp_path) -> None:
    for name in ("cat", "dog"):
        put(tmp_path / f"pets/train/{name}/1.png")
    put(tmp_path / "pets/test/dog/1.png", 9)
    source = load(str(tmp_path / "pets"))
    assert source.train.labels.tolist() == [0, 1]
    assert source.test.labels.tolist() == [1]
    assert source.test.class_names == ("cat", "dog")


@pytest.mark.parametrize("name", ["validation", "val"])
def test_validation_stands_in_for_test(tmp_path, name) -> None:
    put(tmp_path / "train/cat/1.png", 1)
    put(tmp_path / name / "cat/1.png", 2)
    assert load(str(tmp_path)).test.images.max() == 2
    put(tmp_path / "test/cat/1.png", 3)
    assert load(str(tmp_path)).test.images.max() == 3


def test_a_training_folder_alone_has_no_test(tmp_path) -> None:
    put(tmp_path / "train/cat/1.png")
    source = load(str(tmp_path))
    assert source.test is None
    assert source.train.class_names == ("cat",)


def test_hidden_entries_are_passed_over(pets) -> None:
    (pets / ".DS_Store").write_bytes(b"x")
    (pets / "cat/.thumbs.db").write_bytes(b"x")
    put(pets / ".cache/1.png")
    assert len(load(str(pets)).train) == 3


def test_what_is_no_image_is_named(pets) -> None:
    (pets / "cat/notes.txt").write_text("whiskers")
    with pytest.raises(InputError, match=r"cat/notes\.txt: not an image"):
        load(str(pets))


def test_a_damaged_image_is_named(pets) -> None:
    whole = (pets / "dog/b.png").read_bytes()
    (pets / "dog/b.png").write_bytes(whole[:45])
    with pytest.raises(InputError, match=r"dog/b\.png: a damaged PNG image"):
        load(str(pets))


def test_all_that_cannot_be_used_is_named_at_once_or_left_out(pets) -> None:
    """As real folders are: a cache of thumbnails, a text, an empty file, a damaged image, a folder."""
    (pets / "cat/Thumbs.db").write_bytes(b"cache")
    (pets / "cat/empty.jpg").write_bytes(b"")
    (pets / "dog/notes.txt").write_text("barks")
    (pets / "dog/half.png").write_bytes((pets / "dog/b.png").read_bytes()[:45])
    put(pets / "dog/more/1.png")
    bad = ("cat/Thumbs.db", "cat/empty.jpg", "dog/notes.txt", "dog/half.png", "dog/more")
    with pytest.raises(InputError, match="5 files cannot be used") as refused:
        load(str(pets))
    assert all(name in str(refused.value) for name in bad)
    (pets / "Thumbs.db").write_bytes(b"cache")
    found = load(str(pets), skip_bad=True)
    assert len(found.train) == 3
    assert found.train.labels.tolist() == [0, 1, 1]
    assert {str(path.relative_to(pets)) for path in found.left_out} == {"Thumbs.db", *bad}


def test_a_folder_of_nothing_else_is_refused_all_the_same(pets) -> None:
    for file in [file for file in pets.rglob("*") if file.is_file()]:
        file.write_bytes(b"x")
    with pytest.raises(InputError, match="without 3 files that cannot be used: it holds no images"):
        load(str(pets), skip_bad=True)


def test_a_file_outside_the_classes_is_named(pets) -> None:
    put(pets / "stray.png")
    with pytest.raises(InputError, match=r"stray\.png: a file outside the class folders"):
        load(str(pets))


def test_a_folder_inside_a_class_is_named(pets) -> None:
    put(pets / "cat/more/1.png")
    with pytest.raises(InputError, match="cat/more: only image files"):
        load(str(pets))


def test_a_pipe_is_not_waited_for(pets) -> None:
    os.mkfifo(pets / "cat/pipe.png")
    with pytest.raises(InputError, match=r"cat/pipe\.png: only image files"):
        load(str(pets))


def test_links_may_not_lead_out(pets, tmp_path) -> None:
    put(tmp_path / "secret.png")
    (pets / "cat/inside.png").symlink_to(pets / "dog/b.png")
    assert len(load(str(pets)).train) == 4
    (pets / "cat/outside.png").symlink_to(tmp_path / "secret.png")
    with pytest.raises(InputError, match=r"cat/outside\.png: a link that leads out of"):
        load(str(pets))


def test_a_class_may_not_be_a_link_that_leads_out(pets, tmp_path) -> None:
    put(tmp_path / "elsewhere/1.png")
    (pets / "cow").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="cow: a link that leads out of"):
        load(str(pets))


def test_a_dangling_link_is_named(pets) -> None:
    (pets / "cat/gone.png").symlink_to(pets / "dog/never.png")
    with pytest.raises(InputError, match=r"cat/gone\.png: only image files"):
        load(str(pets))


def test_different_sizes_are_named_and_may_be_resized(pets) -> None:
    put(pets / "cat/big.png", size=(6, 5))
    with pytest.raises(
        InputError, match=re.escape(f"{pets}: its images have different shapes (3 of 4×4×1, 1 of 5×6×1); give")
    ):
        load(str(pets))
    assert load(str(pets), image_size=3).train.images.shape == (4, 1, 3, 3)


def test_grey_and_colour_may_be_made_one(pets) -> None:
    put(pets / "cat/colour.png", mode="RGB")
    with pytest.raises(InputError, match="give --channels"):
        load(str(pets))
    assert load(str(pets), channels=3).train.images.shape == (4, 3, 4, 4)


def test_train_and_test_of_different_shapes_are_refused(tmp_path) -> None:
    put(tmp_path / "train/cat/1.png")
    put(tmp_path / "test/cat/1.png", size=(5, 5))
    with pytest.raises(InputError, match=r"training images .* \[1, 4, 4\] and the test images \[1, 5, 5\]; give"):
        load(str(tmp_path))
    assert np.array_equal(load(str(tmp_path), image_size=4).test.images, np.zeros((1, 1, 4, 4)))


def test_a_test_class_that_was_never_trained_is_named(tmp_path) -> None:
    put(tmp_path / "train/cat/1.png")
    put(tmp_path / "test/dog/1.png")
    with pytest.raises(InputError, match="class 'dog' has no folder"):
        load(str(tmp_path))


def test_a_third_folder_beside_train_is_named(tmp_path) -> None:
    put(tmp_path / "train/cat/1.png")
    put(tmp_path / "cat/1.png")
    with pytest.raises(InputError, match="'cat' is beside 'train'"):
        load(str(tmp_path))


def test_empty_folders_are_refused(tmp_path) -> None:
    with pytest.raises(InputError, match="no class folders in it"):
        load(str(tmp_path))
    (tmp_path / "cat").mkdir()
    with pytest.raises(InputError, match="it holds no images"):
        load(str(tmp_path))


def test_options_of_other_sources_are_refused(pets) -> None:
    with pytest.raises(UsageError, match="--id-column does not apply"):
        load(str(pets), id_column="owner")
