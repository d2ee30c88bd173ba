"""PNG in and out: what is in a dataset artifact's `image.bytes`, and users' own images as they come.

`encode_png` writes the critical chunks IHDR, IDAT, IEND and nothing else, so that a file which leaves a client
has no place for a comment, a time or a camera's serial number. `decode_png` trusts nobody: what the header
declares is checked before a pixel is allocated, and the compressed stream must hold exactly those pixels.
`read_image` is the wider door for the images of a source, in any everyday format.
"""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

MAX_PIXELS = 4096 * 4096
"""The largest image that is decoded unless the caller allows more: 16 MB in grey, 48 MB in colour."""

COMPRESS_LEVEL = 1
"""zlib level. On FashionMNIST level 6 is 4% smaller and an eighth slower; on digits and CIFAR it is no smaller."""

SOURCE_FORMATS = ("PNG", "JPEG", "JPEG2000", "BMP", "GIF", "TIFF", "WEBP", "PPM", "TGA", "PCX", "SGI", "ICO")
"""Raster formats only: Pillow hands EPS to another program, and a data file must not start programs."""

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS_OF_COLOUR_TYPE = {0: 1, 2: 3}
_WRITTEN = {"IHDR", "IDAT", "IEND"}
_SEVERAL = (b"GIF8", b"II*\0", b"MM\0*", b"RIFF")  # GIF, TIFF and WebP: they may hold several pictures
_GREY_MODES = {"1", "L", "LA", "La"}
_BITS_PER_SAMPLE = 258  # a tag of TIFF


class _Chunk(NamedTuple):
    name: str
    body: memoryview


def encode_png(image: NDArray[np.uint8]) -> bytes:
    """The PNG of a uint8 image [h, w], [h, w, 1] or [h, w, 3]: equal pixels, equal bytes; critical chunks only."""
    if image.dtype != np.uint8:
        raise ValueError(f"a PNG is made from uint8 pixels, found {image.dtype}")
    if image.ndim == 3 and image.shape[2] == 1:
        image = image[:, :, 0]
    if image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[2] != 3) or image.size == 0:
        raise ValueError(f"a PNG is made from pixels [h, w], [h, w, 1] or [h, w, 3], found {list(image.shape)}")
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image)).save(buffer, "PNG", compress_level=COMPRESS_LEVEL)
    return buffer.getvalue()


def decode_png(data: bytes, max_pixels: int = MAX_PIXELS) -> NDArray[np.uint8]:
    """The pixels [c, h, w] of an 8-bit grey or RGB PNG; `ValueError` for anything else.

    Memory is bounded by `max_pixels` whatever the bytes claim. Ancillary chunks are not an error here: who must not
    find any looks with `chunks`.
    """
    found = _parse(data)
    channels, height, width = _header(found[0].body, max_pixels)
    rows = _inflated(found, height * (1 + width * channels))
    mode = "L" if channels == 1 else "RGB"
    try:
        # Pillow undoes the filters. It is given the rows stored, not compressed: to inflate twice took a third longer.
        picture = Image.frombytes(mode, (width, height), zlib.compress(rows, 0), "zip", mode)
    except Exception as error:  # Pillow meets hostile bytes with many types of exception
        raise ValueError(f"a PNG that cannot be decoded: {error}") from error
    return _channels_first(np.array(picture))


def chunks(data: bytes) -> list[str]:
    """The names of a PNG's chunks in order. One that begins in lower case is ancillary: no part of the picture."""
    return [chunk.name for chunk in _parse(data)]


def check_plain(data: bytes, shape: tuple[int, ...]) -> None:
    """`ValueError` unless the PNG is as `encode_png` writes it: pixels [c, h, w], and no room for more."""
    found = _parse(data)
    extra = sorted({chunk.name for chunk in found} - _WRITTEN)
    if extra:
        raise ValueError(f"a PNG carries the chunk {extra[0]}, which no viewer shows")
    if any(chunk.name == "IDAT" and not chunk.body for chunk in found):
        raise ValueError("a PNG carries an empty IDAT chunk")
    size = _header(found[0].body, MAX_PIXELS)
    if size != shape:
        raise ValueError(f"a PNG is {'×'.join(map(str, size))}, but the file says {'×'.join(map(str, shape))}")
    _inflated(found, size[1] * (1 + size[2] * size[0]))


def check_written(data: bytes, shape: tuple[int, ...]) -> tuple[NDArray[np.uint8], bool]:
    """The pixels [c, h, w], and whether the bytes are the very ones that `encode_png` writes of them here.

    `ValueError` for what it would write nowhere: another size, other chunks or filters, more bytes than are needed. The
    compressed stream comes from zlib, whose builds differ: where that alone differs, the answer is False.
    """
    check_plain(data, shape)
    pixels = decode_png(data)
    again = encode_png(pixels.transpose(1, 2, 0))
    if again == data:
        return pixels, True
    expected = shape[1] * (1 + shape[2] * shape[0])
    if _inflated(_parse(again), expected) != _inflated(_parse(data), expected):
        raise ValueError("a PNG's rows are filtered otherwise than fedsynth's encoder does")
    if len(data) > len(again) + len(again) // 8 + 64:
        raise ValueError(f"a PNG takes {len(data)} bytes where {len(again)} are enough")
    return pixels, False


def read_image(data: bytes, max_pixels: int = MAX_PIXELS, *, bits: int | None = None) -> NDArray[np.uint8]:
    """The pixels [1, h, w] (grey) or [3, h, w] (all else) of a user's image, turned upright as its EXIF says.

    Transparency is dropped and the first frame of several is taken. Pixels deeper than 8 bits are brought from
    0…2^bits − 1 to 0…255; without `bits` they are refused: one would have to guess their range, or estimate it from
    private data.
    """
    with warnings.catch_warnings():
        # Pillow warns of what is odd in a file, in lines of its own; what counts is whether it can be read.
        warnings.simplefilter("ignore")
        return _channels_first(_read_pixels(data, max_pixels, bits))


def num_frames(data: bytes) -> int:
    """How many pictures a file has of which `read_image` takes the first; 1 where that cannot be known."""
    if not data.startswith(_SEVERAL):
        return 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=SOURCE_FORMATS) as picture:
                return int(getattr(picture, "n_frames", 1))
    except Exception:  # `read_image` says what is wrong
        return 1


def _read_pixels(data: bytes, max_pixels: int, bits: int | None) -> NDArray[np.uint8]:
    try:
        picture: Image.Image = Image.open(io.BytesIO(data), formats=SOURCE_FORMATS)
    except Exception as error:
        raise ValueError(f"not an image that can be read ({', '.join(SOURCE_FORMATS)})") from error
    with picture:
        _check_size(picture.width, picture.height, max_pixels)
        is_deep_grey = picture.mode == "I" or picture.mode.startswith("I;")
        if picture.mode == "F":
            raise ValueError("an image of floating-point numbers: make it one of up to 16 bits first")
        if is_deep_grey or _depth(picture, data) > 8:
            if bits is None:
                raise ValueError("an image of more than 8 bits a channel: say by --bits how many of them are used")
            if not is_deep_grey and bits != 16:
                raise ValueError(
                    "an image of more than 8 bits a channel and several channels: read with --bits 16 only"
                )
        try:
            upright = ImageOps.exif_transpose(picture)
            if is_deep_grey:
                deep: NDArray[np.int64] = np.array(upright).astype(np.int64)
            else:
                return np.array(upright.convert("L" if picture.mode in _GREY_MODES else "RGB"))
        except Exception as error:
            raise ValueError(f"a damaged {picture.format} image: {error}") from error
    return _scaled(deep, bits or 16)


def _depth(picture: Image.Image, data: bytes) -> int:
    """Bits of a channel in the file; of several channels Pillow hands out the upper 8."""
    if picture.format == "PNG":
        return data[24]
    found: Sequence[int] = getattr(picture, "tag_v2", {}).get(_BITS_PER_SAMPLE, (8,))
    return max(found)


def _scaled(pixels: NDArray[np.int64], bits: int) -> NDArray[np.uint8]:
    """0…2^bits − 1 to 0…255, to the nearest."""
    top = (1 << bits) - 1
    least, most = int(pixels.min()), int(pixels.max())
    if least < 0 or most > top:
        raise ValueError(f"a pixel of {most if most > top else least}, outside of the 0…{top} of --bits {bits}")
    nearest: NDArray[np.int64] = (2 * 255 * pixels + top) // (2 * top)
    return nearest.astype(np.uint8)


def _parse(data: bytes) -> list[_Chunk]:
    """The chunks, after their frame was checked: lengths, names, checksums, order, and nothing after the end."""
    if not data.startswith(_SIGNATURE):
        raise ValueError("not a PNG: it does not begin with the PNG signature")
    view = memoryview(data)
    found: list[_Chunk] = []
    position = len(_SIGNATURE)
    while not found or found[-1].name != "IEND":
        if position + 12 > len(data):
            raise ValueError("a truncated PNG: it ends before its IEND chunk")
        (length,) = struct.unpack_from(">I", data, position)
        name = data[position + 4 : position + 8]
        if not (name.isalpha() and name.isascii()):
            raise ValueError(f"a malformed PNG: {name!r} is not the name of a chunk")
        end = position + 8 + length
        if end + 4 > len(data):
            raise ValueError(f"a truncated PNG: it ends inside its {name.decode()} chunk of {length} bytes")
        if zlib.crc32(view[position + 4 : end]) != struct.unpack_from(">I", data, end)[0]:
            raise ValueError(f"a damaged PNG: the checksum of its {name.decode()} chunk is wrong")
        found.append(_Chunk(name.decode(), view[position + 8 : end]))
        position = end + 4
    if position != len(data):
        raise ValueError(f"a malformed PNG: {len(data) - position} bytes follow its IEND chunk")
    names = [chunk.name for chunk in found]
    if names[0] != "IHDR" or names.count("IHDR") != 1 or len(found[0].body) != 13 or len(found[-1].body) != 0:
        raise ValueError("a malformed PNG: it must begin with its one IHDR chunk and end with an empty IEND chunk")
    first = names.index("IDAT") if "IDAT" in names else len(names)
    count = names.count("IDAT")
    if count == 0 or names[first : first + count] != ["IDAT"] * count:
        raise ValueError("a malformed PNG: its IDAT chunks are missing or not in one run")
    return found


def _header(body: memoryview, max_pixels: int) -> tuple[int, int, int]:
    """Channels, height and width from IHDR, if they are of the kind that `encode_png` writes."""
    width, height, depth, colour_type, compression, filtering, interlace = struct.unpack(">IIBBBBB", body)
    _check_size(width, height, max_pixels)
    plain = depth == 8 and (compression, filtering, interlace) == (0, 0, 0)
    if not plain or colour_type not in _CHANNELS_OF_COLOUR_TYPE:
        raise ValueError(
            f"a PNG of {depth} bits, colour type {colour_type}, interlace {interlace}; "
            "only plain 8-bit grey (0) and RGB (2) are read here"
        )
    return _CHANNELS_OF_COLOUR_TYPE[colour_type], height, width


def _check_size(width: int, height: int, max_pixels: int) -> None:
    if width < 1 or height < 1 or width * height > max_pixels:
        raise ValueError(f"an image that declares {width}×{height} pixels; 1 to {max_pixels:,} are allowed")


def _inflated(found: list[_Chunk], expected: int) -> bytes:
    """The rows, if the compressed stream holds exactly those declared: not fewer, and nothing hidden behind them."""
    inflate = zlib.decompressobj()
    try:
        rows = inflate.decompress(b"".join(c.body for c in found if c.name == "IDAT"), expected + 1)
    except zlib.error as error:
        raise ValueError(f"a damaged PNG: its IDAT chunk cannot be inflated ({error})") from error
    if len(rows) != expected or not inflate.eof or inflate.unused_data:
        raise ValueError(f"a malformed PNG: its IDAT does not hold exactly the {expected} bytes that IHDR declares")
    return rows


def _channels_first(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    """[h, w] or [h, w, c] → [c, h, w], contiguous."""
    planes = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    return np.ascontiguousarray(planes)
