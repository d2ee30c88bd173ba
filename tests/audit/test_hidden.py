"""Private pictures among those that leave, keys in disguise, and spellings that could carry bits."""

import struct
import zlib

import numpy as np
import pytest
from tampering.run import Run

from artifacts.formats import dataset_file, dataset_rows, parquet_layout, tensors_file
from artifacts.identity import keys
from stages.audit import audit
from stages.audit.pictures import Fingerprints
from stages.audit.secrets import Watch
from stages.data.png import check_written, decode_png, encode_png


@pytest.fixture
def run(tampered, forge):
    return Run(tampered, forge)


def said(run, check):
    report = audit(run.client, received=[run.root / "public", run.root / "server/outbox"])
    return [f.what for f in report.findings if f.check == check and f.level == "failure"]


def private(run):
    return [decode_png(png) for png in dataset_file.read(run.private / "data.parquet").pngs.to_pylist()[:12]]


def changed(pixels):
    """A copy that is not the same: the last bit of each pixel."""
    return pixels ^ 1


@pytest.mark.parametrize(("how", "words"), [(lambda p: p, "12 of its 12"), (changed, "and 12 nearly so")])
def test_private_pictures_in_a_synthetic_set_are_found_without_a_replay(run, how, words):
    run.rewrite_dataset([encode_png(how(pixels).transpose(1, 2, 0)) for pixels in private(run)])
    assert any(words in what for what in said(run, "images"))


def test_one_private_picture_in_a_surrogate_is_found(run):
    images = run.tensors("surrogate")["images"].copy()
    images[0] = private(run)[0].astype(np.float32) / np.float32(127.5) - 1
    run.rewrite("surrogate", {"images": images})
    assert any("1 of its" in what for what in said(run, "images"))


def test_other_pictures_of_the_same_digits_are_not_taken_for_copies():
    """Real digits are like one another: no two different ones of 1,797 are so alike."""
    from sklearn.datasets import load_digits

    pixels = np.unique((load_digits().images * 15.9375).astype(np.uint8), axis=0)
    mine, others = Fingerprints(), Fingerprints()
    for number, image in enumerate(pixels):
        (mine if number % 2 else others).add(image[None])
    exact, near = mine.among(others)
    assert exact == 0 and near <= 2


# Keys

SECRET = keys.Key(bytes(range(100, 132)))


def found(show):
    watch = Watch(SECRET)
    show(watch)
    return watch.found


NOISE = np.random.default_rng(0).normal(size=4096).astype(np.float32)


def hidden(values):
    numbers = NOISE.copy()
    numbers[100 : 100 + len(values)] = values
    return numbers


DISGUISES = {
    "backwards": lambda watch: watch.see(NOISE.tobytes() + SECRET.secret[::-1]),
    "a byte a float": lambda watch: watch.see_numbers(hidden(np.frombuffer(SECRET.secret, np.uint8))),
    "a share of 255 in half precision": lambda watch: watch.see_numbers(
        hidden(np.frombuffer(SECRET.secret, np.uint8) / 255).astype(np.float16)
    ),
    "a share of 255 a float": lambda watch: watch.see_numbers(hidden(np.frombuffer(SECRET.secret, np.uint8) / 255)),
    "the first half": lambda watch: watch.see(NOISE.tobytes() + SECRET.secret[:16]),
    "the last 15 bytes": lambda watch: watch.see(SECRET.secret[17:] + NOISE.tobytes()),
    "15 bytes from the middle": lambda watch: watch.see(b"x" + SECRET.secret[9:24]),
}


@pytest.mark.parametrize("how", DISGUISES)
def test_a_key_in_disguise_is_found(how):
    assert found(DISGUISES[how]) == ["a part of the secret key"]


def test_numbers_that_are_no_key_are_not_taken_for_one():
    assert found(lambda watch: (watch.see(NOISE.tobytes()), watch.see_numbers(NOISE))) == []
    assert found(lambda watch: watch.see_numbers(np.arange(256, dtype=np.float32)[::-1].copy())) != []  # that is one


def test_a_key_in_the_pixels_of_a_set_is_found(run):
    pixels = np.zeros((8, 8), np.uint8)
    pixels.reshape(-1)[:32] = np.frombuffer(run.key.secret, np.uint8)
    rest = dataset_file.read(run.path("dataset")).pngs.to_pylist()[1:]
    run.rewrite_dataset([encode_png(pixels), *rest])
    assert any("secret key" in what for what in said(run, "secrets"))


# PNG


def chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png(rows, *streams):
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", rows.shape[1], rows.shape[0], 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunk(b"IDAT", s) for s in streams) + chunk(b"IEND", b"")


PIXELS = np.random.default_rng(1).integers(0, 256, (8, 8), dtype=np.uint8)


def filtered():
    """The rows as `encode_png` filters them."""
    data = encode_png(PIXELS)
    start = data.index(b"IDAT") + 4
    return zlib.decompress(data[start : data.index(b"IEND") - 8])


def test_what_the_encoder_writes_is_its_own():
    pixels, same = check_written(encode_png(PIXELS), (1, 8, 8))
    assert same and (pixels[0] == PIXELS).all()


def test_other_filters_are_refused():
    ours = filtered()
    plain = b"".join(b"\0" + row.tobytes() for row in PIXELS)
    if plain == ours:
        plain = b"".join(b"\1" + bytes([row[0], *np.diff(row).tolist()]) for row in PIXELS)
    with pytest.raises(ValueError, match="filtered otherwise"):
        check_written(png(PIXELS, zlib.compress(plain)), (1, 8, 8))


def test_empty_deflate_blocks_are_refused():
    """An empty stored block takes five bytes; thousands of them carry what one likes."""
    packed = zlib.compressobj(1, zlib.DEFLATED, 15)
    stream = packed.compress(filtered()) + b"".join(packed.flush(zlib.Z_FULL_FLUSH) for _ in range(1))
    stream += b"\0\0\0\xff\xff" * 5000 + packed.flush()
    with pytest.raises(ValueError, match="bytes where"):
        check_written(png(PIXELS, stream), (1, 8, 8))


def test_a_set_with_some_pictures_compressed_otherwise_fails(run):
    pngs = dataset_file.read(run.path("dataset")).pngs.to_pylist()
    start = pngs[0].index(b"IDAT") + 4
    rows = zlib.decompress(pngs[0][start : pngs[0].index(b"IEND") - 8])
    other = zlib.compressobj(9, zlib.DEFLATED, 15, 1, zlib.Z_FIXED)
    run.rewrite_dataset([png(PIXELS, other.compress(rows) + other.flush()), *pngs[1:]])
    assert any("otherwise than the others" in what for what in said(run, "images"))


# Parquet


def test_row_groups_of_another_size_are_refused(forge, tmp_path, monkeypatch):
    monkeypatch.setattr(dataset_rows, "ROWS_PER_GROUP", 2)
    path = forge.write_dataset(tmp_path / "a.parquet", rows=5)
    monkeypatch.undo()
    with pytest.raises(Exception, match=f"does not hold {parquet_layout.ROWS_PER_GROUP} rows"):
        dataset_file.read(path)


def test_another_writer_in_the_footer_is_noticed(run):
    path, about = run.path("dataset"), run.about("dataset")

    def change(footer):
        footer["6:binary"] = b"parquet-cpp-arrow version 19.68.2-mueller"

    path.write_bytes(run.forge.forge_footer(path.read_bytes(), change))
    run.put(path, about)
    assert any("written by Arrow 19.68.2-mueller" in what for what in said(run, "params"))


def test_pages_that_end_elsewhere_are_noticed(run, monkeypatch):
    """The same rows by the same library with smaller pages: one spelling among many."""
    found = dataset_file.read(run.path("dataset"))
    import pyarrow.parquet as pq

    writer = pq.ParquetWriter
    small = {"data_page_size": 64, "write_batch_size": 2}
    monkeypatch.setattr(pq, "ParquetWriter", lambda *a, **more: writer(*a, **more, **small))
    run.rewrite_dataset(found.pngs.to_pylist())
    monkeypatch.undo()
    assert any("not as they are written" in what for what in said(run, "digest"))


def test_spellings_of_parameters(run):
    """1 for 1.0, a default left out: what is declared has one spelling."""
    about = run.about("message")
    for params in ({n: v for n, v in about.params.items() if n != "tell_steps"}, {**about.params, "tell_steps": 0}):
        run.rewrite("message", params=params)
        assert any("not those of encode" in what and "steps" in what for what in said(run, "params"))


def test_a_salt_of_ones_own_is_noticed_without_a_replay(run):
    from artifacts.identity.commitments import commit

    source = tensors_file.read(run.private / "update-0001.safetensors")
    mine = commit(run.key, role="update", kind="update", sha256=source.sha256, context={"my": "own"})
    run.rewrite("message", inputs=(run.about("message").inputs[0], mine))
    assert any("a salt that does not follow" in what for what in said(run, "lineage"))


def test_disclosures_beyond_need_are_noticed(run):
    stated = (*run.about("message").disclosures, "radius")
    run.rewrite("message", disclosures=tuple(sorted(stated)))
    assert any("declares radius" in what for what in said(run, "lineage"))
