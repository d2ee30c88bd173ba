"""dSprites in the layout of its public npz, written here: what is read, what is refused, and nothing is unpickled."""

from __future__ import annotations

import io
import pickle
import zipfile

import numpy as np
import pytest

from artifacts.errors import InputError, UsageError
from stages.data.named.dsprites import FILE
from stages.data.params import PartitionParams
from stages.data.sources import load
from stages.partition import partition


class Bomb:
    """Unpickled, it would leave a mark."""

    def __reduce__(self):
        return (exec, ("import builtins; builtins.dsprites_was_unpickled = True",))


def npy(array):
    sink = io.BytesIO()
    np.lib.format.write_array(sink, array, allow_pickle=True)
    return sink.getvalue()


def latents_of(count=96):
    """Colour, shape, scale, orientation, x, y: every shape in every quadrant."""
    rows = np.arange(count)
    columns = [np.ones(count), rows % 3 + 1, np.full(count, 0.5), rows * 0.1, rows // 3 % 2, rows // 6 % 2]
    return np.stack(columns, axis=1).astype(np.float64)


def write(root, images=None, latents=None, **others):
    root.mkdir(exist_ok=True)
    latents = latents_of() if latents is None else latents
    if images is None:
        images = np.zeros((len(latents), 64, 64), np.uint8)
        for row, one in enumerate(latents):
            images[row, int(one[5]) * 32 + 5 : int(one[5]) * 32 + 15, int(one[4]) * 32 : int(one[4]) * 32 + 9] = 1
    members = {"imgs": npy(images), "latents_values": npy(latents), **others}
    members["metadata"] = npy(np.array(Bomb(), dtype=object))
    with zipfile.ZipFile(root / FILE, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return root


def test_images_shapes_and_brightness(tmp_path):
    found = load("dsprites", root=write(tmp_path / "data"))
    assert found.train.images.shape == (96, 1, 64, 64) and set(np.unique(found.train.images)) == {0, 255}
    assert found.train.class_names == ("square", "ellipse", "heart")
    assert found.train.labels.tolist() == [row % 3 for row in range(96)]
    assert found.test is None and found.train.ids is None


def test_a_client_is_one_shape_in_one_quadrant(tmp_path):
    params = PartitionParams(clients=12, scheme="attributes", by="shape,x:2,y:2", test_fraction=0.1)
    partition("dsprites", tmp_path / "run", params=params, seed=0, root=write(tmp_path / "data"))
    names = {path.name for path in (tmp_path / "run" / "clients").iterdir()}
    assert len(names) == 12
    whole = load("dsprites", root=tmp_path / "data", by="shape,x:2,y:2").train
    for label, name, image in zip(whole.labels, whole.ids, whole.images, strict=True):
        shape, x, y = name.split("_")
        assert shape == whole.class_names[label]
        assert image[0, int(y) * 32 : int(y) * 32 + 32, int(x) * 32 : int(x) * 32 + 32].any()


def test_nothing_is_unpickled(tmp_path):
    import builtins

    load("dsprites", root=write(tmp_path / "data"))
    assert not hasattr(builtins, "dsprites_was_unpickled")
    write(tmp_path / "bad", imgs=npy(np.array([Bomb()], dtype=object)))
    with pytest.raises(InputError, match="imgs must be uint8"):
        load("dsprites", root=tmp_path / "bad")
    assert not hasattr(builtins, "dsprites_was_unpickled")
    pickle.loads(pickle.dumps(Bomb()))  # the planted one goes off where it is unpickled
    assert hasattr(builtins, "dsprites_was_unpickled")
    del builtins.dsprites_was_unpickled


def huge():
    """A header that promises the whole dataset, and no bytes behind it."""
    sink = io.BytesIO()
    np.lib.format.write_array_header_1_0(sink, {"descr": "|u1", "fortran_order": False, "shape": (737280, 64, 64)})
    return sink.getvalue()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"imgs": huge()}, "not as many bytes"),
        ({"imgs": npy(np.zeros((3, 32, 32), np.uint8))}, "imgs must be uint8"),
        ({"imgs": npy(np.full((96, 64, 64), 7, np.uint8))}, "0 or 1"),
        ({"imgs": npy(np.zeros((5, 64, 64), np.uint8))}, "5 images"),
        ({"latents_values": npy(np.full((96, 6), 9.0))}, "a shape is 1, 2 or 3"),
        ({"latents_values": npy(np.full((96, 6), np.nan))}, "not finite"),
        ({"latents_values": b"no array"}, "not dSprites"),
    ],
)
def test_other_files_are_refused(tmp_path, change, said):
    with pytest.raises(InputError, match=said):
        load("dsprites", root=write(tmp_path / "data", **change))


def test_no_archive_no_root_no_column(tmp_path):
    with pytest.raises(UsageError, match="needs --root"):
        load("dsprites")
    with pytest.raises(InputError, match="no such file"):
        load("dsprites", root=tmp_path)
    (tmp_path / FILE).write_bytes(b"PK nothing")
    with pytest.raises(InputError, match="not dSprites"):
        load("dsprites", root=tmp_path)
    with pytest.raises(InputError, match="its columns are"):
        load("dsprites", root=write(tmp_path / "data"), by="hue")
