"""Small artifacts, and hostile ones: whoever forges a file recomputes its digests and its seal.

Not a test: the fixture `forge` hands this module out.
"""

import hashlib
import io
import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from artifacts.digests import ZEROS, canonical_json
from artifacts.errors import InputError
from artifacts.formats import dataset_file, dataset_rows, parquet_layout, seal, tensors_file
from artifacts.identity import dsse
from artifacts.metadata import Metadata

VERSIONS = {"fedsynth": "0"}
IMAGE = pa.struct([pa.field("bytes", pa.binary()), pa.field("path", pa.string())])
DATASET_PARAMS = {"num_classes": 2, "channels": 1, "height": 2, "width": 2, "class_names": ["cat", "dog"]}


def metadata(kind="model", **changes):
    custody = {"model": "public", "message": "outbound", "proxy": "outbound", "surrogate": "outbound"}
    fields = {"kind": kind, "stage": "forge", "custody": custody.get(kind, "private"), "versions": VERSIONS}
    if fields["custody"] == "outbound":
        fields |= {"client": "00", "disclosures": ("update",)}
    if kind == "dataset":
        fields["params"] = DATASET_PARAMS
    return Metadata(**fields | changes)


def write_tensors(path, tensors=None, kind="model", **changes):
    tensors = {"w": np.arange(6, dtype="f4").reshape(2, 3)} if tensors is None else tensors
    tensors_file.write(path, tensors, metadata(kind, **changes))
    return path


def write_dataset(path, rows=3, **changes):
    pngs = [bytes([row % 256]) * (5 + row % 3) for row in range(rows)]
    dataset_file.write(path, pngs, np.arange(rows, dtype=np.int64) % 2, metadata("dataset", **changes))
    return path


def snapshot(folder):
    """Every file below the folder with its bytes: equal snapshots, nothing written, nothing lost."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(Path(folder).rglob("*")) if p.is_file()}


def flip(data, position, bit):
    return data[:position] + bytes([data[position] ^ (1 << bit)]) + data[position + 1 :]


def refused(path, data, read):
    """That these bytes are no whole artifact to this reader, which says so in a line; returns the line."""
    path.unlink()  # to overwrite a file in place takes ten times as long on ext4
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        read(path)
    text = str(caught.value)
    assert text.startswith(f"{path} is not a whole fedsynth artifact") and "\n" not in text
    return text


def no_check(*_):
    """Put in the place of a writer's check, to write what a careless program would."""


# safetensors


def take_apart(data):
    """The header's table, our metadata and the payload of a safetensors artifact."""
    (length,) = struct.unpack("<Q", data[:8])
    table = json.loads(data[8 : 8 + length])
    return table, json.loads(table["__metadata__"]["fedsynth"]), data[8 + length :]


def frame(header, payload=b""):
    """Header text and payload as a safetensors file."""
    raw = header if isinstance(header, bytes) else header.encode()
    raw += b" " * (-len(raw) % 8)
    return struct.pack("<Q", len(raw)) + raw + payload


def forge_tensors(data, *, table=None, fields=None, payload=None, text=None, mangle=lambda header: header):
    """The artifact `data` with changes, its digest and seal recomputed as an attacker would.

    `table` and `fields` are functions that change the header's table and our metadata in place; `text` changes the
    metadata's JSON, `mangle` the header's.
    """
    found, about, old_payload = take_apart(data)
    payload = old_payload if payload is None else payload
    if table:
        table(found)
    about |= {"payload_sha256": hashlib.sha256(payload).hexdigest(), "seal_sha256": ZEROS}
    if fields:
        fields(about)
    line = canonical_json(about)
    found["__metadata__"]["fedsynth"] = text(line) if text else line
    return sealed_tensors(mangle(json.dumps(found, separators=(",", ":"))), payload)


def sealed_tensors(header, payload):
    """Header text with zeros for its seal, and payload, as a sealed file."""
    unsealed = frame(header)
    digits = rf"\"seal_sha256\":\"{ZEROS}".encode()
    position = unsealed.find(digits) + len(digits) - 64
    if position < len(digits) - 64:
        return unsealed + payload  # nowhere to put one
    return unsealed[:position] + seal.compute(unsealed, position).encode() + unsealed[position + 64 :] + payload


# Parquet


def encode_thrift(fields):
    """A struct as `parquet_layout` reads it, `{"id:type": value}`, in Thrift's compact protocol."""
    out, last = b"", 0
    for name, value in sorted(fields.items(), key=lambda item: int(item[0].split(":")[0])):
        number, kind = name.split(":", 1)
        code = 9 if kind.startswith("list") else _CODES[kind]
        out += bytes([(int(number) - last) << 4 | code]) + _encode_value(kind, value)
        last = int(number)
    return out + b"\0"


_CODES = {"i16": 4, "i32": 5, "i64": 6, "binary": 8, "struct": 12}


def _encode_value(kind, value):
    if kind == "struct":
        return encode_thrift(value)
    if kind == "binary":
        return _varint(len(value)) + value
    if kind.startswith("list"):
        inner = kind[5:-1]
        size = bytes([min(len(value), 15) << 4 | _CODES[inner]]) + (_varint(len(value)) if len(value) > 14 else b"")
        return size + b"".join(_encode_value(inner, item) for item in value)
    return _varint((value << 1 ^ value >> 63) & 2**64 - 1)


def _varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def footer_bounds(data):
    end = len(data) - 8
    return end - int.from_bytes(data[-8:-4], "little"), end


def forge_footer(data, change):
    """The Parquet file with its footer changed in place by `change`, sealed anew."""
    start, end = footer_bounds(data)
    footer = parquet_layout._Compact(data[start:end], 0).struct()
    change(footer)
    return with_footer(data[:start], encode_thrift(footer))


def with_footer(pages, footer):
    return reseal(pages + footer + struct.pack("<I", len(footer)) + b"PAR1")


def forge_page(data, change_header=dict.copy, change_payload=bytes):
    """A one-row-group file with the first page of its last column changed, checksum, sizes and seal recomputed."""
    start, end = footer_bounds(data)
    footer = parquet_layout._Compact(data[start:end], 0).struct()
    group = footer["4:list<struct>"][0]
    column = group["1:list<struct>"][-1]["3:struct"]
    reader = parquet_layout._Compact(data, column["9:i64"])
    header = reader.struct()
    payload = change_payload(data[reader.position : start])
    header |= {"2:i32": len(payload), "3:i32": len(payload), "4:i32": _signed(zlib.crc32(payload))}
    change_header(header)
    page = encode_thrift(header) + payload
    grown = len(page) - column["7:i64"]
    for place, names in ((column, ("6:i64", "7:i64")), (group, ("2:i64", "6:i64"))):
        for name in names:
            place[name] += grown
    return with_footer(data[: column["9:i64"]] + page, encode_thrift(footer))


def _signed(number):
    return number - 2**32 if number >> 31 else number


def reseal(data):
    """The Parquet file with the seal that its bytes deserve, if it states one at all."""
    position = data.rfind(b'"seal_sha256":"')
    if position < 0:
        return data
    position += len(b'"seal_sha256":"')
    return data[:position] + seal.compute(data, position).encode() + data[position + 64 :]


def forge_parquet(table, *, text=None, labels=None, **options):
    """Any table as a Parquet file with our metadata, written by a stranger, digest and seal as they should be."""
    pngs = table["image"].combine_chunks().field("bytes").fill_null(b"")
    labels = np.asarray(table["label"]) if labels is None else labels
    digest = dataset_rows.payload_digest(pa.chunked_array([pngs]), labels)
    line = canonical_json(metadata("dataset").to_json(payload_sha256=digest, seal_sha256=ZEROS))
    about = {"huggingface": dataset_rows.huggingface(DATASET_PARAMS["class_names"]), "fedsynth": line}
    plain = {"compression": "none", "use_dictionary": False, "write_statistics": False, "store_schema": False}
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, **plain | {"write_page_checksum": True} | options) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(about if text is None else text(about))
    return reseal(sink.getvalue())


def image_table(pngs, labels, paths=None):
    images = pa.StructArray.from_arrays(
        [pa.array(pngs, pa.binary()), pa.array(paths or [None] * len(pngs), pa.string())], fields=list(IMAGE)
    )
    return pa.table({"image": images, "label": pa.array(labels, pa.int64())})


def footer_text(data, about, huggingface=None):
    """The dataset with these metadata, which are what they may, sealed anew."""
    texts = {b"fedsynth": about.encode()} | ({} if huggingface is None else {b"huggingface": huggingface.encode()})

    def change(footer):
        for pair in footer["5:list<struct>"]:
            pair["2:binary"] = texts.get(pair["1:binary"], pair["2:binary"])

    return forge_footer(data, change)


# Logs, envelopes, PNG


def chained(entries):
    """Entries as the lines of a log, chained to one another where they have what a link needs."""
    lines, head = [], ZEROS
    for number, entry in enumerate(entries, start=1):
        if isinstance(entry, dict) and isinstance(entry.get("previous"), str) and type(entry.get("seq")) is int:
            entry = {**entry, "previous": head, "seq": number}
        line = spelt(entry).encode()
        lines.append(line + b"\n")
        head = hashlib.sha256(line).hexdigest()
    return b"".join(lines)


def enveloped(statement, secrets):
    """Any statement as a line of an envelope file, signed with these keys."""
    envelope = dsse.Envelope(spelt(statement).encode(), {})
    for secret in secrets:
        envelope = envelope.signed(secret)
    return envelope.line()


def spelt(value):
    """Canonical JSON, and of what has none (NaN) what comes next to it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def checksummed(data):
    """A PNG with the checksums that its chunks deserve, as far as it has chunks."""
    position, out = 8, bytearray(data)
    while position + 12 <= len(out):
        end = position + 8 + int.from_bytes(out[position : position + 4], "big")
        if end + 4 > len(out):
            break
        out[end : end + 4] = zlib.crc32(out[position + 4 : end]).to_bytes(4, "big")
        position = end + 4
    return bytes(out)
