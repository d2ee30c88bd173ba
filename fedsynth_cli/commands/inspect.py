"""`fedsynth inspect`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsynth_cli.console import Output, facts, human_bytes, table
from fedsynth_cli.options import Force, Json, Quiet
from fedsynth_cli.urls import WRITTEN

if TYPE_CHECKING:
    from rich.console import Console

_MOST_SHOWN = 60


def inspect(
    file: Annotated[Path, typer.Argument(help="An artifact, or any safetensors or Parquet file.")],
    other: Annotated[Path | None, typer.Argument(help="Another file: say how the two differ.")] = None,
    images: Annotated[
        Path | None,
        WRITTEN,
        typer.Option(help="Write the images in the file as contact sheets: SHEET.png, SHEET-2.png, …"),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Show the images in a terminal with 24-bit colours.")] = False,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show what is in a file: its kind, who made it from what, every tensor or
    column, and what it discloses.

    Example: fedsynth inspect clients/00/outbox/message-0001.safetensors
    """
    from artifacts.errors import UsageError
    from stages.inspect import difference
    from stages.inspect import inspect as stage

    output = Output(as_json=json, quiet=quiet)
    if other is not None:
        if images is not None or show:
            raise UsageError("--images and --show take one file.")
        apart = difference(file, other)
        output.result(apart, lambda console: _show_difference(console, apart))
        return
    about = stage(file)
    drawn: list[str] = []
    if images is not None or show:
        from stages.inspect.pictures import half_blocks, images_in, write_sheets

        content = images_in(about)
        if images is not None:
            about["sheets"] = [str(path) for path in write_sheets(content, about, images, force=force)]
        if show and not sys.stdout.isatty():
            raise UsageError("--show draws in a terminal, and stdout is none. Use --images SHEET.png.")
        if show:
            drawn = half_blocks(content.images[:_MOST_SHOWN], 100)
    output.result(about, lambda console: _show(console, about, drawn))


def _show(console: Console, about: dict[str, Any], drawn: list[str]) -> None:
    found: list[tuple[str, Any]] = [("file", about["file"]), ("size", human_bytes(about["bytes"]))]
    if about["artifact"]:
        found += _facts(about)
    else:
        found.append(("kind", f"a plain {about['format']} file, not a fedsynth artifact"))
        found += [(f"says {name}", value) for name, value in about["metadata"].items()]
        found.append(("sha256", about["sha256"]))
    found += [("sheet", path) for path in about.get("sheets", [])]
    facts(console, found)
    console.print()
    if "tensors" in about:
        rows = [[t["name"], t["dtype"], "×".join(map(str, t["shape"])) or "scalar", t["bytes"], _range(t)]
                for t in about["tensors"]]  # fmt: skip
        table(console, ["tensor", "type", "shape", "bytes", "range"], rows)
    elif "columns" in about:
        rows = [[c["name"], c["type"], c["bytes"], _range(c)] for c in about["columns"]]
        table(console, ["column", "type", "bytes", "range"], rows)
        console.print()
        console.print(f"{about['rows']:,} rows")
    if "class_counts" in about:
        table(console, ["class", "rows"], [[name, count] for name, count in about["class_counts"].items()])
    for line in drawn:
        sys.stdout.write(line + "\n")


def _facts(about: dict[str, Any]) -> list[tuple[str, Any]]:
    who = f"client {about['client']}, " if about["client"] else ""
    when = f"round {about['round']}, " if about["round"] is not None else ""
    method = f" ({about['method']})" if about["method"] else ""
    found: list[tuple[str, Any]] = [
        ("kind", f"{about['kind']}: {about['about']}"),
        ("custody", about["custody"] + (" (simulation)" if about["simulation"] else "")),
        ("made by", f"{who}{when}{about['stage']}{method}"),
        ("epsilon", about["epsilon"]),
        ("sha256", about["sha256"]),
    ]
    for entry in about["inputs"]:
        name = f"sha256 {entry['sha256']}" if "sha256" in entry else f"commitment {entry['commitment']}"
        found.append((f"from {entry['role']}", name))
    found += [(f"discloses {name}", sentence) for name, sentence in about["disclosures"].items()]
    found += [("note", about["note"])] if about["note"] else []
    found += [(f"count {name}", value) for name, value in about["counts"].items()]
    found += [("noise", sentence) for sentence in about["privacy_in_words"]]
    found += [("signed by", ", ".join(line["signed_by"])) for line in about.get("statements", [])]
    params = ", ".join(f"{k}={v}" for k, v in about["params"].items() if k != "class_names")
    found.append(("parameters", params or "none"))
    return found


def _range(found: dict[str, Any]) -> str:
    strange = found.get("not_finite") or 0
    note = f"{strange:,} not finite" if strange else ""
    if found.get("min") is None:
        return note
    low, high = (v if isinstance(v, str | bool) else f"{v:.4g}" for v in (found["min"], found["max"]))
    text = f"{'length ' if found.get('range_of') else ''}{low} … {high}"
    return f"{text}, {note}" if note else text


def _show_difference(console: Console, apart: dict[str, Any]) -> None:
    if apart["identical"]:
        console.print("The two files are identical, byte for byte.")
        return
    rows = [[row["field"], _short(row["first"]), _short(row["second"])] for row in apart["fields"]]
    table(console, ["field", "first", "second"], rows)
    if "tensors" in apart:
        console.print()
        table(
            console,
            ["tensor", "first", "second", "largest difference", "cosine"],
            [_apart(t) for t in apart["tensors"]],
        )
    if "rows" in apart:
        rows = apart["rows"]
        console.print()
        console.print(
            f"{rows['first']:,} and {rows['second']:,} rows; at the same place {rows['same_images']:,} images and "
            f"{rows['same_labels']:,} labels are the same.",
        )  # fmt: skip


def _apart(row: dict[str, Any]) -> list[str]:
    if "identical" not in row:
        return [row["name"], row["first"] or "–", row["second"] or "–", "–", "–"]
    cosine = "–" if row["cosine"] is None else f"{row['cosine']:.4f}"
    largest = "identical" if row["identical"] else f"{row['max_difference']:.4g}"
    return [row["name"], row["first"], "the same", largest, cosine]


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
