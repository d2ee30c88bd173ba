"""PNG: what `encode_png` writes comes back, and nothing hostile gets past `decode_png` or `read_image`."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from stages.data.png import MAX_PIXELS, chunks, decode_png, encode_png, read_image

SIGNATURE = b"\x89PNG\r\n\x1a\n"
grey_8x8 = np.arange(64, dtype=np.uint8).reshape(8, 8) * 4


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def header(width: int, height: int, depth: int = 8, colour: int = 0, interlace: int = 0) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlace))


def png(*parts: bytes) -> bytes:
    return SIGNATURE + b"".join(parts) + chunk(b"IEND", b"")


def rows(height: int, width: int, channels: int = 1) -> bytes:
    return zlib.compress(b"\0" * (height * (1 + width * channels)))


def saved(picture: Image.Image, kind: str, **options) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


@given(hnp.arrays(np.uint8, hnp.array_shapes(min_dims=2, max_dims=2, max_side=40)))
def test_grey_pixels_come_back(image) -> None:
    data = encode_png(image)
    assert np.array_equal(decode_png(data), image[None])
    assert encode_png(image[:, :, None]) == data


@given(hnp.arrays(np.uint8, st.tuples(st.integers(1, 30), st.integers(1, 30), st.just(3))))
def test_colour_pixels_come_back(image) -> None:
    data = encode_png(image)
    assert np.array_equal(decode_png(data), image.transpose(2, 0, 1))
    assert np.array_equal(read_image(data), image.transpose(2, 0, 1))


def test_only_critical_chunks_even_when_there_are_many() -> None:
    assert chunks(encode_png(grey_8x8)) == ["IHDR", "IDAT", "IEND"]
    noise = np.random.default_rng(0).integers(0, 256, (700, 700, 3), dtype=np.uint8)
    assert set(chunks(encode_png(noise))) == {"IHDR", "IDAT", "IEND"}


def test_encoding_does_not_depend_on_memory_layout() -> None:
    planes = np.random.default_rng(0).integers(0, 256, (3, 9, 7), dtype=np.uint8)
    view = planes.transpose(1, 2, 0)
    assert not view.flags.c_contiguous
    assert encode_png(view) == encode_png(view.copy())


@pytest.mark.parametrize("shape", [(4,), (4, 4, 2), (4, 4, 4), (1, 4, 4, 3), (0, 4), (4, 0, 3)])
def test_encode_refuses_other_shapes(shape) -> None:
    with pytest.raises(ValueError, match="a PNG is made from pixels"):
        encode_png(np.zeros(shape, np.uint8))


def test_encode_refuses_floats() -> None:
    with pytest.raises(ValueError, match="found float32"):
        encode_png(np.zeros((4, 4), np.float32))


def test_every_flipped_bit_and_every_truncation_is_noticed() -> None:
    data = encode_png(grey_8x8)
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            with pytest.raises(ValueError, match="PNG"):
                decode_png(bytes(damaged))
    for length in range(len(data)):
        with pytest.raises(ValueError, match=r"not a PNG|truncated"):
            decode_png(data[:length])


def test_ancillary_chunks_are_named_and_do_no_harm() -> None:
    plain = encode_png(grey_8x8)
    secret = plain[:33] + chunk(b"tEXt", b"Comment\0patient 17") + plain[33:]
    assert chunks(secret) == ["IHDR", "tEXt", "IDAT", "IEND"]
    assert np.array_equal(decode_png(secret), grey_8x8[None])


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "signature"),
        (b"GIF89a" + b"\0" * 50, "signature"),
        (SIGNATURE, "truncated"),
        (png(), "begin with its one IHDR"),
        (png(header(2, 2)), "IDAT chunks are missing"),
        (png(header(2, 2), header(2, 2), chunk(b"IDAT", rows(2, 2))), "begin with its one IHDR"),
        (png(chunk(b"IDAT", rows(2, 2)), header(2, 2)), "begin with its one IHDR"),
        (png(chunk(b"IHDR", b"\0\0\0\2\0\0\0\2"), chunk(b"IDAT", rows(2, 2))), "begin with its one IHDR"),
        (png(header(2, 2), chunk(b"ID4T", rows(2, 2))), "not the name of a chunk"),
        (png(header(2, 2), chunk(b"IDAT", b""), chunk(b"tEXt", b""), chunk(b"IDAT", rows(2, 2))), "not in one run"),
        (png(header(2, 2), chunk(b"IDAT", rows(2, 2))) + b"hidden", "6 bytes follow"),
        (png(header(0, 2), chunk(b"IDAT", rows(2, 2))), "declares 0×2"),
        (png(header(2**31 - 1, 2**31 - 1), chunk(b"IDAT", rows(2, 2))), "declares 2147483647×2147483647"),
        (png(header(4097, 4096), chunk(b"IDAT", rows(2, 2))), "16,777,216 are allowed"),
        (png(header(2, 2, depth=16), chunk(b"IDAT", rows(2, 4))), "16 bits"),
        (png(header(2, 2, colour=3), chunk(b"PLTE", b"\0" * 6), chunk(b"IDAT", rows(2, 2))), "colour type 3"),
        (png(header(2, 2, interlace=1), chunk(b"IDAT", rows(2, 2))), "interlace 1"),
        (png(header(2, 2), chunk(b"IDAT", b"not zlib")), "cannot be inflated"),
        (png(header(2, 2), chunk(b"IDAT", rows(1, 2))), "does not hold exactly the 6 bytes"),
        (png(header(2, 2), chunk(b"IDAT", rows(3, 2))), "does not hold exactly the 6 bytes"),
        (png(header(2, 2), chunk(b"IDAT", rows(2, 2) + b"hidden")), "does not hold exactly the 6 bytes"),
        (png(header(2, 2), chunk(b"IDAT", rows(2, 2)[:-4])), "does not hold exactly the 6 bytes"),
        (png(header(2, 2), chunk(b"IDAT", zlib.compress(b"\7\0\0\7\0\0"))), "cannot be decoded"),
    ],
)
def test_hostile_pngs(data, complaint) -> None:
    with pytest.raises(ValueError, match=complaint):
        decode_png(data)


def test_the_limit_is_the_callers() -> None:
    data = encode_png(grey_8x8)
    assert decode_png(data, max_pixels=64).shape == (1, 8, 8)
    for read in (decode_png, read_image):
        with pytest.raises(ValueError, match="8×8 pixels; 1 to 63 are allowed"):
            read(data, max_pixels=63)


@pytest.mark.parametrize("read", [decode_png, read_image])
@pytest.mark.parametrize(
    "bomb",
    [
        png(header(8, 8), chunk(b"IDAT", zlib.compress(bytes(64 * 2**20)))),
        png(header(60_000, 60_000), chunk(b"IDAT", zlib.compress(bytes(64 * 2**20)))),
        png(header(8, 8), chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(64 * 2**20))), chunk(b"IDAT", rows(8, 8))),
    ],
    ids=["too many pixels", "a size that nobody can hold", "a text of 64 MB"],
)
def test_a_bomb_is_never_inflated(read, bomb) -> None:
    tracemalloc.start()
    try:
        read(bomb)
    except ValueError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 4 * 2**20


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_whatever_stands_in_well_formed_chunks_only_valueerror_comes_out(head, body) -> None:
    head = (head + bytes(13))[:13]
    for data in (png(chunk(b"IHDR", head), chunk(b"IDAT", body)), head + body):
        with pytest.raises(ValueError):
            decode_png(data, max_pixels=10_000)
        with pytest.raises(ValueError):
            read_image(data, max_pixels=10_000)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "GIF", "TIFF", "PPM", "TGA", "WEBP"])
def test_lossless_formats_are_read(kind) -> None:
    options = {"lossless": True} if kind == "WEBP" else {}
    data = saved(Image.fromarray(grey_8x8), kind, **options)
    assert np.array_equal(read_image(data)[0], grey_8x8)


def test_jpeg_is_read() -> None:
    flat = np.full((8, 8, 3), (200, 100, 50), np.uint8)
    image = read_image(saved(Image.fromarray(flat), "JPEG", quality=95))
    assert image.shape == (3, 8, 8)
    assert np.abs(image.astype(int) - flat.transpose(2, 0, 1)).max() <= 4


def test_modes_become_grey_or_colour() -> None:
    grey = Image.fromarray(grey_8x8)
    assert read_image(saved(grey.convert("1"), "PNG")).shape == (1, 8, 8)
    assert read_image(saved(grey.convert("LA"), "PNG")).shape == (1, 8, 8)
    colour = Image.new("RGB", (8, 8), (10, 20, 30))
    for picture in (colour.quantize(2), colour.convert("RGBA")):
        assert read_image(saved(picture, "PNG"))[:, 0, 0].tolist() == [10, 20, 30]


def test_an_image_is_turned_upright() -> None:
    lying = Image.fromarray(np.array([[0, 50, 100], [150, 200, 250]], np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held turned: rotate a quarter clockwise
    upright = read_image(saved(lying, "PNG", exif=exif))
    assert upright[0].tolist() == [[150, 0], [200, 50], [250, 100]]


def test_more_than_eight_bits_are_scaled_only_by_a_range_that_is_given() -> None:
    """0…4095 to 0…255: 2048 · 255/4095 is 127.53. What lies beyond the range is no pixel of it."""
    deep = Image.fromarray(np.array([[0, 2048], [4095, 8]], np.uint16))
    for kind in ("PNG", "TIFF"):
        data = saved(deep, kind)
        with pytest.raises(ValueError, match="more than 8 bits a channel: say by --bits"):
            read_image(data)
        assert read_image(data, bits=12).tolist() == [[[0, 128], [255, 0]]]
        assert read_image(data, bits=16).tolist() == [[[0, 8], [16, 0]]]
        with pytest.raises(ValueError, match="a pixel of 4095, outside of the 0…2047 of --bits 11"):
            read_image(data, bits=11)


def test_colour_of_sixteen_bits_is_read_whole_or_not_at_all() -> None:
    pixels = struct.pack(">3H", 0x1234, 0xABCD, 0x00FF)
    data = png(header(1, 1, depth=16, colour=2), chunk(b"IDAT", zlib.compress(b"\0" + pixels)))
    for bits, said in ((None, "say by --bits"), (12, "with --bits 16 only")):
        with pytest.raises(ValueError, match=said):
            read_image(data, bits=bits)
    assert read_image(data, bits=16).reshape(-1).tolist() == [0x12, 0xAB, 0]


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_fewer_bits_than_eight_fill_the_range(depth: int) -> None:
    top = (1 << depth) - 1
    body = zlib.compress(bytes([0, 0, 0, top << (8 - depth)]))  # two rows of one pixel: 0 and the largest
    data = png(header(1, 2, depth=depth), chunk(b"IDAT", body))
    assert read_image(data).tolist() == read_image(data, bits=12).tolist() == [[[0], [255]]]


def test_what_is_no_image_is_refused() -> None:
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n"
    for data in (b"", b"label,pixel\n", postscript, b"<svg/>"):
        with pytest.raises(ValueError, match="not an image that can be read"):
            read_image(data)


def test_truncated_images_are_refused() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    for kind in ("PNG", "JPEG", "BMP", "GIF", "WEBP"):
        data = saved(Image.fromarray(noise), kind)
        with pytest.raises(ValueError, match=r"damaged|not an image"):
            read_image(data[: len(data) // 2])


def test_an_enormous_source_image_is_refused_without_a_warning(recwarn) -> None:
    side = 10_000
    assert side * side > MAX_PIXELS
    with pytest.raises(ValueError, match="10000×10000"):
        read_image(saved(Image.new("1", (side, side)), "PNG"))
    assert not recwarn.list
