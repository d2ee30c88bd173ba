"""What an insider hides in the pictures of a dataset."""

import struct
import zlib

import numpy as np
from tampering.run import case

from artifacts.formats import dataset_file
from stages.data.png import encode_png


def pngs(run):
    return dataset_file.read(run.path("dataset")).pngs.to_pylist()


def _chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png(height, width, stream, *more):
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = [_chunk(b"IHDR", header), *more, _chunk(b"IDAT", stream), _chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


_ROWS = zlib.compress(bytes(8 * 9))


@case("images", "a text chunk in a PNG")
def _(run):
    run.rewrite_dataset(pngs=[png(8, 8, _ROWS, _chunk(b"tEXt", b"patient\0Mueller")), *pngs(run)[1:]])


@case("images", "a palette in a PNG")
def _(run):
    run.rewrite_dataset(pngs=[png(8, 8, _ROWS, _chunk(b"PLTE", b"Mueller68")), *pngs(run)[1:]])


@case("images", "bytes behind the pixels of a PNG")
def _(run):
    run.rewrite_dataset(pngs=[png(8, 8, zlib.compress(bytes(8 * 9) + b"Mueller")), *pngs(run)[1:]])


@case("images", "bytes behind the end of a PNG")
def _(run):
    run.rewrite_dataset(pngs=[pngs(run)[0] + b"Mueller", *pngs(run)[1:]])


@case("images", "a larger picture among the others")
def _(run):
    run.rewrite_dataset(pngs=[*pngs(run)[:-1], encode_png(np.zeros((16, 16), np.uint8))])


@case("images", "a text in the place of a picture")
def _(run):
    run.rewrite_dataset(pngs=[b"Mueller 29.2.1968", *pngs(run)[1:]])
