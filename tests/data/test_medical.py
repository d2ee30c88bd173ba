"""DICOM and NIfTI: the pixels as another reader shows them, the people as numbers, and nothing of a header."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from artifacts.errors import InputError, UsageError
from artifacts.identity.keys import Key
from stages.data.conform import Form
from stages.data.labelled_folder import load_labelled
from stages.data.medical import ScanReading, parse_blank, parse_slices, parse_window, read_dicom, read_nifti

pydicom = pytest.importorskip("pydicom")
nibabel = pytest.importorskip("nibabel")
DICOM = Path(pydicom.__file__).parent / "data/test_files"
NIFTI = Path(nibabel.__file__).parent / "tests/data"
KEY = Key(b"k" * 32)


def folder_with(tmp_path, names, labels=None):
    """These files of pydicom's, and the CSV of their labels."""
    folder = tmp_path / "scans"
    folder.mkdir()
    for name in names:
        shutil.copy(DICOM / name, folder / name)
    table = tmp_path / "labels.csv"
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([("file", "label"), *zip(names, labels or ["a"] * len(names), strict=True)])
    return folder, table


def load(folder, table, form=None, key=KEY, **options):
    scans = ScanReading(**{name: options.pop(name) for name in ("window", "slices", "blank") if name in options})
    form = form or Form(size=(16, 16), channels=1)
    return load_labelled(folder, table, form, scans=scans, key=key, label_column="label", unit_column=None, **options)


@pytest.mark.parametrize("window", [(40.0, 400.0), (600.0, 100.0)])
def test_a_window_shows_what_pydicom_shows(window):
    from pydicom.pixels import apply_rescale, apply_windowing

    path = DICOM / "CT_small.dcm"
    dataset = pydicom.dcmread(path)
    dataset.WindowCenter, dataset.WindowWidth = window
    dataset.VOILUTFunction = "LINEAR_EXACT"
    values = apply_rescale(dataset.pixel_array, dataset)
    shown = apply_windowing(values, dataset)  # over the range of values of the rescaled bits
    low, high = shown.min(), shown.max()
    image = read_dicom(path.read_bytes(), ScanReading(window=window)).images[0]
    inside = (values > window[0] - window[1] / 2) & (values < window[0] + window[1] / 2)
    assert 0 < inside.sum() < inside.size and high > low
    # Where the window is passed on either side, black and white; between, the same order and the same shares.
    assert set(np.unique(image[0][values <= window[0] - window[1] / 2])) <= {0}
    assert set(np.unique(image[0][values >= window[0] + window[1] / 2])) <= {255}
    full = _full_range(dataset)
    assert np.abs(image[0] / 255 - (shown - full[0]) / (full[1] - full[0])).max() < 1 / 255


def _full_range(dataset):
    """What pydicom spreads a window over: the least and the most that the stored bits can mean."""
    most = 2**dataset.BitsStored - 1
    ends = (-(2 ** (dataset.BitsStored - 1)), 2 ** (dataset.BitsStored - 1) - 1)
    least, most = ends if dataset.PixelRepresentation else (0, most)
    return tuple(float(dataset.RescaleSlope) * end + float(dataset.RescaleIntercept) for end in (least, most))


def test_every_file_that_pydicom_ships_is_an_image_or_says_why_not():
    read = 0
    for path in sorted(DICOM.glob("*.dcm")):
        data = path.read_bytes()
        if data[128:132] != b"DICM":
            continue
        try:
            found = read_dicom(data, ScanReading(window=(40.0, 400.0), slices="all"))
        except ValueError as error:
            assert str(error) and "Traceback" not in str(error)
            continue
        read += 1
        assert all(image.dtype == np.uint8 and image.shape[0] in (1, 3) and image.ndim == 3 for image in found.images)
    assert read >= 10


def test_measured_values_are_not_guessed():
    data = (DICOM / "CT_small.dcm").read_bytes()
    with pytest.raises(ValueError, match="--window CENTRE,WIDTH"):
        read_dicom(data, ScanReading())
    with pytest.raises(ValueError, match="no window in its header"):
        read_dicom(data, ScanReading(window="file"))


def test_an_inverted_image_is_shown_as_the_others(tmp_path):
    dataset = pydicom.dcmread(DICOM / "CT_small.dcm")
    plain = read_dicom((DICOM / "CT_small.dcm").read_bytes(), ScanReading(window=(600.0, 900.0))).images[0]
    dataset.PhotometricInterpretation = "MONOCHROME1"
    dataset.save_as(tmp_path / "1.dcm")
    inverted = read_dicom((tmp_path / "1.dcm").read_bytes(), ScanReading(window=(600.0, 900.0))).images[0]
    assert np.abs(plain.astype(int) + inverted.astype(int) - 255).max() <= 1


def test_slices_of_a_volume_are_those_of_nibabel():
    path = NIFTI / "anatomical.nii"
    values = nibabel.as_closest_canonical(nibabel.load(path)).get_fdata()
    centre, width = (values.min() + values.max()) / 2, values.max() - values.min()
    found = read_nifti(path, path.read_bytes(), ScanReading(window=(centre, width), slices="all"))
    assert len(found.images) == values.shape[2]
    number = values.shape[2] // 2
    expected = np.rint((values[:, :, number] - values.min()) / width * 255)
    # Front at the top, the person's left at the right of the picture.
    assert np.abs(found.images[number][0] - expected[::-1, ::-1].T).max() <= 1
    (middle,) = read_nifti(path, path.read_bytes(), ScanReading(window=(centre, width))).images
    assert np.array_equal(middle, found.images[number])


@pytest.mark.parametrize("name", ["functional.nii", "example4d.nii.gz"])
def test_a_series_of_volumes_is_refused(name):
    with pytest.raises(ValueError, match="4 dimensions"):
        read_nifti(NIFTI / name, (NIFTI / name).read_bytes(), ScanReading(window=(0.0, 1.0)))


def test_a_compressed_volume_that_claims_too_much_is_refused(tmp_path):
    path = tmp_path / "bomb.nii.gz"
    image = nibabel.Nifti1Image(np.zeros((2, 2, 2), np.int16), np.eye(4))
    image.header.set_data_shape((30000, 30000, 30000))
    import gzip

    path.write_bytes(gzip.compress(image.header.binaryblock + bytes(4)))
    with pytest.raises(ValueError, match="more than are read"):
        read_nifti(path, path.read_bytes(), ScanReading(window=(0.0, 1.0)))


def test_people_are_numbers_in_an_order_that_the_key_makes(tmp_path):
    names = ["CT_small.dcm", "MR_small.dcm", "MR_small_RLE.dcm", "MR_small_bigendian.dcm"]
    folder, table = folder_with(tmp_path, names, ["a", "b", "b", "b"])
    scans = ScanReading(window=(600.0, 900.0))
    form = Form(size=(16, 16), channels=1)

    def read(key):
        return load_labelled(
            folder, table, form, scans=scans, key=key, label_column="label", unit_column="PatientID"
        ).content  # fmt: skip

    ids = [str(pydicom.dcmread(folder / name).PatientID) for name in names]
    content = read(KEY)
    assert int(content.units.max()) + 1 == len(set(ids)) == 2
    for unit in (0, 1):  # all that one has is together, with the labels of the files
        assert set(content.labels[content.units == unit].tolist()) in ({0}, {1})
    assert content.units.tolist() == sorted(content.units.tolist())
    firsts = {read(Key(bytes([number]) * 32)).labels[0] for number in range(1, 30)}
    assert firsts == {0, 1}, "the order of people is the same under every key"


def test_a_volume_is_one_person(tmp_path):
    folder = tmp_path / "scans"
    folder.mkdir()
    shutil.copy(NIFTI / "anatomical.nii", folder / "a.nii")
    shutil.copy(NIFTI / "anatomical.nii", folder / "b.nii")
    table = tmp_path / "labels.csv"
    table.write_text("file;label\na.nii;x\nb.nii;y\n")
    content = load(folder, table, window=(100.0, 200.0), slices=(10, 13)).content
    assert content.units.tolist() == [0, 0, 0, 1, 1, 1]
    assert load(folder, table, window=(100.0, 200.0), slices=(10, 13), key=None).content.units is None


def test_all_that_cannot_be_used_is_named_at_once(tmp_path):
    folder, table = folder_with(tmp_path, ["CT_small.dcm", "MR_small.dcm"])
    (folder / "Thumbs.db").write_bytes(b"cache")
    (folder / "cut.dcm").write_bytes((DICOM / "CT_small.dcm").read_bytes()[:3000])
    burnt = pydicom.dcmread(DICOM / "CT_small.dcm")
    burnt.BurnedInAnnotation = "YES"
    burnt.save_as(folder / "burnt.dcm")
    table.write_text(table.read_text() + "cut.dcm,a\nburnt.dcm,a\n")
    with pytest.raises(InputError, match="3 files cannot be used") as refused:
        load(folder, table, window=(40.0, 400.0))
    for named in ("Thumbs.db (no line of the CSV names it)", "cut.dcm (", "burnt.dcm (text is burnt into its pixels"):
        assert named in str(refused.value)
    skipped = load(folder, table, Form(size=(8, 8), channels=1, skip_bad=True), window=(40.0, 400.0))
    assert len(skipped.content) == 2 and len(skipped.left_out) == 3
    (folder / "Thumbs.db").unlink()
    (folder / "cut.dcm").unlink()
    table.write_text(table.read_text().replace("cut.dcm,a\n", ""))
    content = load(folder, table, Form(channels=1, size=(128, 128)), window=(600.0, 900.0), blank=((0, 0, 20, 128),))
    assert len(content.content) == 3


def test_lines_of_the_table_are_named_at_once(tmp_path):
    folder, table = folder_with(tmp_path, ["CT_small.dcm"])
    table.write_text("file,label\nCT_small.dcm,a\nCT_small.dcm,b\nnone.dcm,a\n../labels.csv,a\nCT_small.dcm,\n")
    with pytest.raises(InputError, match="4 lines cannot be used") as refused:
        load(folder, table)
    for said in ("line 3", "named twice", "line 4", "no such file", "leads out of the folder", "no label"):
        assert said in str(refused.value)


def test_ordinary_images_may_have_a_table_too(tmp_path):
    (tmp_path / "photos").mkdir()
    for name, value in (("x.png", 10), ("y.png", 20)):
        Image.new("L", (4, 4), value).save(tmp_path / "photos" / name)
    (tmp_path / "labels.csv").write_text("file,label,who\nx.png,cat,1\ny.png,dog,2\n")
    content = load(tmp_path / "photos", tmp_path / "labels.csv", Form()).content
    assert sorted(zip(content.labels.tolist(), content.images[:, 0, 0, 0].tolist(), strict=True)) == [(0, 10), (1, 20)]
    assert content.class_names == ("cat", "dog")


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_window, "40"),
        (parse_window, "40,0"),
        (parse_window, "nan,1"),
        (parse_slices, "1-2"),
        (parse_blank, ["1,2"]),
    ],
)
def test_options_that_say_nothing_are_refused(parse, text):
    with pytest.raises(UsageError):
        parse(text)


def test_an_audit_finds_what_a_header_says(tmp_path, fedsynth):
    folder, table = folder_with(tmp_path, ["CT_small.dcm", "MR_small.dcm"], ["a", "b"])
    home = tmp_path / "clients/hospital-a"
    schema = tmp_path / "schema.yaml"
    schema.write_text("classes: [a, b]\nchannels: 1\nheight: 16\nwidth: 16\n")
    model = tmp_path / "public/model.safetensors"
    update = home / "private/update-0001.safetensors"
    ingest = (
        "ingest", folder, "--labels", table, "--unit-column", "PatientID", "--window", "600,900", "--schema", schema,
        "-o", home / "private/data.parquet",
    )  # fmt: skip
    code, _, err = fedsynth(*ingest)
    assert code == 2 and "keygen" in err
    for words in (
        ("keygen", "-o", home / "private/client.key"),
        ingest,
        (
            "ingest",
            folder,
            "--labels",
            table,
            "--window",
            "600,900",
            "--schema",
            schema,
            "-o",
            tmp_path / "public/t.parquet",
        ),
        ("init-model", "--like", tmp_path / "public/t.parquet", "--arch", "softmax", "-o", model),
        ("train-client", model, home / "private/data.parquet", "--local-steps", "1", "-o", update),
        ("encode", model, update, "-o", home / "outbox/message-0001.safetensors"),
    ):
        code, _, err = fedsynth(*words)
        assert code == 0, err
    line = ("audit", home, "--received", tmp_path / "public", "--headers", folder, "--json")
    said = json.loads(fedsynth(*line)[1])
    assert said["header_texts"] > 20 and said["checks"]["headers"]["result"] == "ok", said["findings"]
    patient = str(pydicom.dcmread(folder / "CT_small.dcm").PatientName)
    import base64

    for content in (f"x{patient}y".encode(), base64.b64encode(b"to " + patient.encode())):
        (home / "private/notes.txt").write_bytes(content)
        said = json.loads(fedsynth(*line)[1])
        assert said["checks"]["headers"]["failures"] == 1
        assert any("Patient's Name" in one["what"] for one in said["findings"] if one["check"] == "headers")
