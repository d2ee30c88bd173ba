"""DICOM and NIfTI: the pixels of a scan as images of 8 bits, and of all else only the person's id, which is hashed.

Nothing of a header is kept. Values become bytes by a window that is given, or by the file's own; where there is none,
that is refused: one would have to guess the range, or estimate it from private data. Overlays are not drawn. What a
file says of text inside its pixels (Burned In Annotation) is reported, never guessed.
"""

from __future__ import annotations

import gzip
import io
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import UsageError
from stages.data.png import MAX_PIXELS

Text = Literal["no", "yes", "not said"]
_MOST_SLICES = 4096
_MOST_VOXELS = 2**27  # 512 slices of 512×512
_NIFTI = (".nii", ".nii.gz")
_DEFLATED, _HEAD = b"1.2.840.10008.1.2.1.99", 4096  # the transfer syntax, and where it is named
_TEXTS = ("PN", "LO", "SH", "LT", "ST", "UT", "UC", "UI", "DA", "DT", "TM", "AE", "UR")
_STANDARD = "1.2.840.10008."  # the standard's own numbers, which name nobody
_INSTALL = "pip install 'fedsynth[medical]'"


@dataclass(frozen=True, kw_only=True)
class ScanReading:
    """How scans are read.

    `window` is centre and width in the units of the scan (Hounsfield for CT), «file» for the one in its header, None
    where pixels have 8 bits anyway. `slices` says which of a volume are images, `blank` which rectangle is made black:
    top, left, height and width in pixels of the scan.
    """

    window: tuple[float, float] | Literal["file"] | None = None
    slices: tuple[int | None, int | None] | Literal["all", "middle"] = "middle"
    blank: tuple[tuple[int, int, int, int], ...] = ()


@dataclass(frozen=True)
class Scan:
    """The images [c, h, w] of one file, the person's id as its header has it, and whether text is in the pixels."""

    images: list[NDArray[np.uint8]]
    person: str | None
    text: Text


def parse_window(text: str) -> tuple[float, float] | Literal["file"]:
    """`40,400` or `file`."""
    if text == "file":
        return "file"
    found = text.split(",")
    try:
        centre, width = (float(number) for number in found)
    except ValueError:
        raise UsageError(f"--window must be CENTRE,WIDTH such as 40,400, or file; found {text!r}.") from None
    if not (np.isfinite(centre) and np.isfinite(width) and width > 0):
        raise UsageError(f"--window: the width must be above 0, found {text!r}.")
    return centre, width


def parse_slices(text: str) -> tuple[int | None, int | None] | Literal["all", "middle"]:
    """`all`, `middle`, or `FROM:TO` as Python counts."""
    if text == "all":
        return "all"
    if text == "middle":
        return "middle"
    found = re.fullmatch(r"(\d{0,5}):(\d{0,5})", text, re.ASCII)
    if found is None:
        raise UsageError(f"--slices must be all, middle or FROM:TO such as 40:60, found {text!r}.")
    first, last = (int(part) if part else None for part in found.groups())
    return first, last


def parse_blank(texts: Sequence[str]) -> tuple[tuple[int, int, int, int], ...]:
    """`TOP,LEFT,HEIGHT,WIDTH` in pixels, as often as needed."""
    found = []
    for text in texts:
        if not re.fullmatch(r"\d{1,5}(,\d{1,5}){3}", text, re.ASCII):
            raise UsageError(f"--blank must be TOP,LEFT,HEIGHT,WIDTH in pixels such as 0,0,40,512, found {text!r}.")
        top, left, height, width = (int(part) for part in text.split(","))
        found.append((top, left, height, width))
    return tuple(found)


def is_dicom(data: bytes) -> bool:
    return data[128:132] == b"DICM"


def is_nifti(path: Path) -> bool:
    return path.name.lower().endswith(_NIFTI)


def read_dicom(data: bytes, reading: ScanReading) -> Scan:
    """The images of a DICOM file; `ValueError` says why there are none."""
    pydicom = _library("pydicom")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is odd in a header; what counts is whether it can be read
        dataset = _dicom_dataset(pydicom, data)
        frames = int(dataset.get("NumberOfFrames") or 1)
        _check_size(int(dataset.get("Rows") or 0), int(dataset.get("Columns") or 0), frames)
        person = str(dataset.get("PatientID") or "").strip() or None
        kind = str(dataset.get("PhotometricInterpretation") or "")
        try:
            pixels = _dicom_pixels(dataset, kind)
        except Exception as error:
            first = str(error).partition("\n")[0]
            raise ValueError(f"a DICOM image whose pixels cannot be decoded ({first})") from error
        colour = int(dataset.get("SamplesPerPixel") or 1) == 3 or kind == "PALETTE COLOR"
        volume = pixels.reshape(frames, *pixels.shape[-3:] if colour else pixels.shape[-2:])
        shown = [_blanked(volume[number], reading) for number in _chosen(frames, reading)]
        if colour:
            if int(dataset.get("BitsStored") or 8) > 8 and kind != "PALETTE COLOR":
                raise ValueError("a colour DICOM image of more than 8 bits a channel")
            images = [np.ascontiguousarray(frame.transpose(2, 0, 1)).astype(np.uint8) for frame in shown]
        else:
            window = _dicom_window(dataset, reading)
            images = [_windowed(frame, window, inverted=kind == "MONOCHROME1") for frame in shown]
    said = str(dataset.get("BurnedInAnnotation") or "").strip().upper()
    return Scan(images, person, "yes" if said == "YES" else "no" if said == "NO" else "not said")


def read_nifti(path: Path, data: bytes, reading: ScanReading) -> Scan:
    """Slices of a NIfTI volume from the feet to the head, the right of the picture the person's left.

    It has no id and says nothing of text.
    """
    nibabel = _library("nibabel")
    try:
        opened = gzip.GzipFile(fileobj=io.BytesIO(data)) if path.name.lower().endswith(".gz") else io.BytesIO(data)
        image = nibabel.Nifti1Image.from_stream(opened)
        shape = tuple(int(side) for side in image.shape)
        if len(shape) != 3:
            raise ValueError(f"a volume of {len(shape)} dimensions: one of three is read, split it first")
        _check_size(shape[0], shape[1], shape[2])
        if np.dtype(image.get_data_dtype()).kind not in "iuf":
            raise ValueError(f"a volume of {image.get_data_dtype()}: numbers are read")
        window = reading.window
        if window == "file":
            low, high = float(image.header["cal_min"]), float(image.header["cal_max"])
            if not low < high:
                raise ValueError("no window in its header (cal_min, cal_max): give --window CENTRE,WIDTH")
            window = ((low + high) / 2, high - low)
        if window is None:
            raise ValueError("a volume of measured values: say by --window CENTRE,WIDTH which of them are shown")
        values = np.asarray(nibabel.as_closest_canonical(image).dataobj, dtype=np.float64)
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(f"not a NIfTI volume that can be read ({str(error).partition(chr(10))[0]})") from error
    # Canonical axes lead to the right, the front and the head; rows of a picture lead downwards.
    shown = (_blanked(values[::-1, ::-1, number].T, reading) for number in _chosen(values.shape[2], reading))
    return Scan([_windowed(plane, window, inverted=False) for plane in shown], None, "not said")


def header_texts(data: bytes) -> dict[str, str]:
    """What a DICOM header says of people, places, times and devices, by the name of its field; nested ones too."""
    pydicom = _library("pydicom")
    found: dict[str, str] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = _dicom_dataset(pydicom, data)
        for element in dataset.iterall():
            if element.VR not in _TEXTS:
                continue
            values = element.value if element.VM > 1 else [element.value]
            for number, value in enumerate(values):
                if not str(value).startswith(_STANDARD):
                    found[f"{element.name} {number + 1}" if len(values) > 1 else str(element.name)] = str(value)
    return found


def _library(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        raise UsageError(f"medical images need {name}: {_INSTALL}.") from None


def _dicom_dataset(pydicom: Any, data: bytes) -> Any:
    try:
        if _DEFLATED in data[:_HEAD]:  # it would be inflated whole, to whatever size
            raise ValueError("a deflated DICOM file: write it again without compression")
        return pydicom.dcmread(io.BytesIO(data))
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(f"a damaged DICOM file ({str(error).partition(chr(10))[0]})") from error


def _dicom_pixels(dataset: Any, kind: str) -> NDArray[Any]:
    from pydicom.pixels import apply_color_lut, apply_rescale, pixel_array

    found: NDArray[Any] = pixel_array(dataset)  # colours of other spaces become RGB
    if kind == "PALETTE COLOR":
        coloured: NDArray[Any] = apply_color_lut(found, dataset)
        return (coloured >> 8).astype(np.uint8) if coloured.dtype.itemsize > 1 else coloured
    return found if found.ndim > 2 and found.shape[-1] == 3 else apply_rescale(found, dataset)


def _dicom_window(dataset: Any, reading: ScanReading) -> tuple[float, float]:
    if isinstance(reading.window, tuple):
        return reading.window
    if reading.window == "file":
        centre, width = (_first(dataset.get(name)) for name in ("WindowCenter", "WindowWidth"))
        if centre is None or width is None or width <= 0:
            raise ValueError("no window in its header: give --window CENTRE,WIDTH")
        return centre, width
    stored, signed = int(dataset.get("BitsStored") or 16), int(dataset.get("PixelRepresentation") or 0)
    if stored > 8 or signed or "RescaleSlope" in dataset:
        raise ValueError(
            "an image of measured values: say by --window CENTRE,WIDTH which of them are shown, or --window file"
        )
    top = (1 << stored) - 1
    return top / 2, float(top)


def _first(value: Any) -> float | None:
    """Headers may offer several windows; the first is the one to show."""
    if value is None or value == "":
        return None
    return float(value[0] if hasattr(value, "__getitem__") and not isinstance(value, str) else value)


def _windowed(values: NDArray[Any], window: tuple[float, float], *, inverted: bool) -> NDArray[np.uint8]:
    """DICOM PS3.3 C.11.2.1.3.2 (LINEAR_EXACT): centre ± width/2 to 0…255, beyond it black and white."""
    centre, width = window
    share = np.clip((values.astype(np.float64) - centre) / width + 0.5, 0.0, 1.0)
    if not np.isfinite(share).all():
        raise ValueError("a value that is no number (NaN)")
    bytes_: NDArray[np.uint8] = np.rint(255.0 * (1.0 - share if inverted else share)).astype(np.uint8)
    return bytes_[None]


def _blanked(plane: NDArray[Any], reading: ScanReading) -> NDArray[Any]:
    """The plane with the rectangles at its least value: black, or white where the file is inverted."""
    if not reading.blank:
        return plane
    plane = plane.copy()
    for top, left, height, width in reading.blank:
        plane[top : top + height, left : left + width] = 0 if plane.ndim == 3 else plane.min()
    return plane


def _chosen(count: int, reading: ScanReading) -> range:
    if reading.slices == "all":
        return range(count)
    if reading.slices == "middle":
        return range(count // 2, count // 2 + 1)
    chosen = range(count)[slice(*reading.slices)]
    if not chosen:
        raise ValueError(f"it has {count} slices, none of them among those asked for")
    return chosen


def _check_size(rows: int, columns: int, slices: int) -> None:
    fits = rows * columns <= MAX_PIXELS and rows * columns * slices <= _MOST_VOXELS
    if not (rows >= 1 and columns >= 1 and 1 <= slices <= _MOST_SLICES and fits):
        raise ValueError(f"a scan that declares {slices} slices of {columns}×{rows}, more than are read")
