"""`fedsynth inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsynth_cli.console import Output, human_bytes, table
from fedsynth_cli.options import Json, Quiet

if TYPE_CHECKING:
    from rich.console import Console


def inspect(
    file: Annotated[Path, typer.Argument(help="An artifact, or any safetensors or Parquet file.")],
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say what is in a file: its kind, who made it from what, every tensor or column, and what it discloses.

    Example: fedsynth inspect clients/00/outbox/message-0001.safetensors
    """
    from stages.inspect import inspect as stage

    about = stage(file)
    Output(as_json=json, quiet=quiet).result(about, lambda console: _show(console, about))


def _show(console: Console, about: dict[str, Any]) -> None:
    facts: list[tuple[str, Any]] = [("file", about["file"]), ("size", human_bytes(about["bytes"]))]
    if about["artifact"]:
        who = f"client {about['client']}, " if about["client"] else ""
        when = f"round {about['round']}, " if about["round"] is not None else ""
        method = f" ({about['method']})" if about["method"] else ""
        facts += [
            ("kind", f"{about['kind']}: {about['about']}"),
            ("custody", about["custody"] + (" (simulation)" if about["simulation"] else "")),
            ("made by", f"{who}{when}{about['stage']}{method}"),
            ("epsilon", about["epsilon"]),
            ("sha256", about["sha256"]),
        ]
        for entry in about["inputs"]:
            name = f"sha256 {entry['sha256']}" if "sha256" in entry else f"commitment {entry['commitment']}"
            facts.append((f"from {entry['role']}", name))
        facts += [(f"tells {name}", sentence) for name, sentence in about["disclosures"].items()]
        facts += [(f"count {name}", value) for name, value in about["counts"].items()]
        facts += [("noise", sentence) for sentence in about["privacy_in_words"]]
        params = ", ".join(f"{k}={v}" for k, v in about["params"].items() if k != "class_names")
        facts.append(("parameters", params or "none"))
    else:
        facts.append(("kind", f"a plain {about['format']} file, not a fedsynth artifact"))
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        console.print(f"{name:<{width}}  {value}", markup=False, highlight=False, soft_wrap=True)
    console.print()
    if "tensors" in about:
        rows = [[t["name"], t["dtype"], "×".join(map(str, t["shape"])) or "scalar", t["bytes"], _range(t)]
                for t in about["tensors"]]  # fmt: skip
        table(console, ["tensor", "type", "shape", "bytes", "range"], rows)
    else:
        table(console, ["column", "type"], [[c["name"], c["type"]] for c in about["columns"]])
        console.print(f"\n{about['rows']:,} rows", highlight=False)
        if "class_counts" in about:
            rows = [[name, count] for name, count in about["class_counts"].items()]
            table(console, ["class", "rows"], rows)


def _range(tensor: dict[str, Any]) -> str:
    if tensor.get("min") is None:
        return ""
    return f"{tensor['min']:.4g} … {tensor['max']:.4g}"
