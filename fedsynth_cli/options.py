"""Options that every command shares, and options made from declared hyper-parameters.

Precedence: flag, params file, preset, default. All four meet in `resolve`, and nowhere else.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints, overload

import click
import typer

from artifacts.errors import UsageError
from artifacts.places import in_outbox, pending_for
from fedsynth_cli import completion
from fedsynth_cli.urls import KEPT, WRITTEN, PathOrUrl
from stages.families import Variants
from stages.hyperparameters import HyperParameters

Out = Annotated[Path, WRITTEN, typer.Option("--out", "-o", help="Where to write.", show_default=False)]
MaybeOut = Annotated[
    Path | None,
    WRITTEN,
    typer.Option("--out", "-o", help="Where to write; without it the result is only printed.", show_default=False),
]
OutOrUrl = Annotated[
    str, typer.Option("--out", "-o", help="Where to write.", show_default=False, click_type=PathOrUrl())
]
Gate = Annotated[bool, typer.Option("--gate", help="Let what leaves wait in pending/ until it is released.")]
Seed = Annotated[int, typer.Option("--seed", help="Root of all ordinary random streams.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing output.")]
Client = Annotated[
    str | None,
    typer.Option("--client", help="Client's name; else that of the folder written to.", show_default=False),
]
Key = Annotated[
    Path | None,
    KEPT,
    typer.Option("--key", help="The client's key; else client.key in its private/.", show_default=False),
]
ServerKey = Annotated[
    Path | None,
    KEPT,
    typer.Option("--key", help="The server's key; else server.key in its private/.", show_default=False),
]
RosterFile = Annotated[Path, typer.Option("--roster", help="The verify keys of everybody.", show_default=False)]
Received = Annotated[
    list[Path] | None,
    typer.Option(
        "--received", help="A folder with what the server sent, or the roster, where no run folder or home has it."
    ),
]
Trust = Annotated[
    str | None,
    typer.Option("--trust", help="Fingerprint of the roster, compared by telephone or letter.", show_default=False),
]
Device = Annotated[
    str,
    typer.Option("--device", help="Where torch runs.", click_type=click.Choice(["auto", "cpu", "cuda", "mps"])),
]
ParamsFile = Annotated[
    Path | None,
    typer.Option(
        "--params", help="YAML or TOML file; the section named after the command is read.", show_default=False
    ),
]
Preset = Annotated[
    str | None,
    typer.Option("--preset", help="Parameters of a recipe: RECIPE or RECIPE/PRESET.", show_default=False),
]
RecipePreset = Annotated[
    str | None,
    typer.Option("--preset", help="A preset of the recipe.", show_default=False, autocompletion=completion.presets),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]

Rounds = Annotated[int | None, typer.Option("--rounds", min=1, help="Number of rounds.", show_default=False)]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Processes, one torch thread each.", show_default=False)
]
Setting = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="stage.key=value, over the recipe's own; may be given several times. `fedsynth recipe "
        "show RECIPE` lists the keys.",
        show_default=False,
        autocompletion=completion.settings,
    ),
]

Log = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        metavar="TRACKER[:PLACE]",
        help="Show the public metrics of each round in mlflow[:URI], tensorboard[:FOLDER] or wandb[:PROJECT]; may be "
        "given several times.",
        show_default=False,
        rich_help_panel="Trackers",
    ),
]
LogPrivate = Annotated[
    bool,
    typer.Option(
        "--private",
        help="With --log: also what was measured on private data. It leaves the run's folder.",
        rich_help_panel="Trackers",
    ),
]


def gated(out: Path, gate: bool) -> Path:
    """Where a file that leaves is written under `--gate`: beside the outbox, in `pending/`."""
    return pending_for(out) if gate and in_outbox(out) else out


# A recipe's section may say these beside the hyper-parameters; on the command line they are arguments.
_NOT_HYPER = {"source", "root", "download"}

Command = Callable[..., None]
P = TypeVar("P", bound=HyperParameters)


@dataclass(frozen=True)
class GivenOptions:
    """What was said about the hyper-parameters: flags, params file, preset."""

    command: str
    flags: Mapping[str, Any]
    params_file: Path | None
    preset: str | None

    @overload
    def resolve(self, declared: type[P], **facts: Any) -> P: ...

    @overload
    def resolve(self, declared: Variants[P], **facts: Any) -> P: ...

    def resolve(self, declared: type[P] | Variants[P], **facts: Any) -> Any:
        """The parameters by precedence; `facts` are what the command found in its inputs."""
        values: dict[str, Any] = {}
        if self.preset is not None:
            from stages.recipes.recipe import load_recipe

            name, _, preset = self.preset.partition("/")
            values |= load_recipe(name, preset or None).section(self.command)
        if self.params_file is not None:
            from stages.recipes.params_file import load_plugins, read_section

            load_plugins(self.params_file)
            values |= read_section(self.params_file, self.command)
        values = {k.replace("-", "_"): v for k, v in values.items()}
        values |= {k: v for k, v in self.flags.items() if v is not None}
        try:
            return declared.from_mapping({k: v for k, v in values.items() if k not in _NOT_HYPER}, facts)
        except ValueError as error:
            raise UsageError(f"{error}.") from error


def numbers(text: str | None, flag: str, most: int = 10_000_000) -> list[int]:
    """`3,17,20-25` → the numbers, ranges with both ends."""
    found: list[int] = []
    for part in text.split(",") if text is not None else []:
        first, dash, last = (word.strip() for word in part.partition("-"))
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise typer.BadParameter(f"{flag}: {part.strip()!r} is neither a number nor a range such as 20-25.")
        run = range(int(first), int(last if dash else first) + 1)
        if len(run) > most:
            raise typer.BadParameter(f"{flag}: {part.strip()!r} is more than any file holds.")
        found += run
    return found


def hyper_options(
    command: str, declared: type[HyperParameters] | Variants[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each declared field, `--params` and `--preset`; it receives them as `given`."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(function, include_extras=True)
        own = [
            parameter.replace(annotation=hints[parameter.name])
            for parameter in inspect.signature(function).parameters.values()
            if parameter.name != "given"
        ]
        fields = _flags(declared)
        extra = [_option(flag) for flag in fields.values()]
        extra.append(_keyword("params", ParamsFile, None))
        extra.append(_keyword("preset", Preset, None))

        def wrapper(**values: Any) -> None:
            flags = {name: values.pop(name) for name in fields}
            given = GivenOptions(command, flags, values.pop("params"), values.pop("preset"))
            function(**values, given=given)

        positional = [p for p in own if p.kind is not inspect.Parameter.KEYWORD_ONLY]
        keyword = [p for p in own if p.kind is inspect.Parameter.KEYWORD_ONLY]
        wrapper.__signature__ = inspect.Signature([*positional, *extra, *keyword])  # type: ignore[attr-defined]
        wrapper.__annotations__ = {p.name: p.annotation for p in [*own, *extra]}
        wrapper.__name__, wrapper.__doc__ = function.__name__, function.__doc__
        return wrapper

    return decorate


@dataclass
class _Flag:
    """A hyper-parameter as an option: what the variants of a command say of it, each once.

    `defaults` has the default in words, by the variants that have it.
    """

    name: str
    hint: Any
    texts: list[str]
    symbols: list[str]
    defaults: dict[str, list[str]]
    panel: str | None

    @classmethod
    def of(cls, field: dataclasses.Field[Any], hint: Any, owners: Sequence[str]) -> _Flag:
        about = field.metadata
        default = ""
        if field.default is not None and not isinstance(field.default, bool):
            default = f"default {field.default}, {'as in the paper' if about['source'] == 'paper' else 'ours'}"
        elif field.default is None and type(None) not in get_args(hint):
            default = "needed"
        if get_origin(hint) is not Literal and get_args(hint):
            hint = next(option for option in get_args(hint) if option is not type(None))
        symbols = [about["symbol"]] if about["symbol"] else []
        return cls(
            field.name, hint, [about["text"].rstrip(".")], symbols, {default: list(owners)}, about["panel"] or None
        )

    def join(self, other: _Flag) -> None:
        """The same name in another variant: it takes the words of both, and belongs to no one's panel."""
        if get_origin(self.hint) is Literal:
            self.hint = Literal[tuple(dict.fromkeys([*get_args(self.hint), *get_args(other.hint)]))]
        self.texts += [text for text in other.texts if text not in self.texts]
        self.symbols += [symbol for symbol in other.symbols if symbol not in self.symbols]
        for default, owners in other.defaults.items():
            self.defaults.setdefault(default, []).extend(owners)
        self.panel = self.panel if self.panel == other.panel else None

    @property
    def notes(self) -> str:
        """Symbols and defaults; where variants differ, each default with the variants that have it."""
        alike = len(self.defaults) == 1
        said = [
            f"{', '.join(owners)}: {default}" if owners and not (alike and default != "needed") else default
            for default, owners in self.defaults.items()
            if default
        ]
        return "; ".join([*([" or ".join(self.symbols)] if self.symbols else []), *said])


def _flags(declared: type[HyperParameters] | Variants[Any]) -> dict[str, _Flag]:
    found: dict[str, _Flag] = {}
    family = declared if isinstance(declared, Variants) else None
    for member in [declared] if isinstance(declared, type) else declared.classes:
        hints = get_type_hints(member)
        for field in dataclasses.fields(member):
            if field.name not in member.names():
                continue  # a fact about the inputs, which nobody gives
            flag = _Flag.of(field, hints[field.name], family.words_of(member) if family is not None else ())
            if field.name in found:
                found[field.name].join(flag)
            else:
                found[field.name] = flag
    if family is not None:
        found[family.key].defaults = {f"default {family.default}": []}
    return found


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _option(flag: _Flag) -> inspect.Parameter:
    """`--name` with its texts, its paper symbol and its default; absent means «not said»."""
    text = ". Or: ".join(flag.texts)
    text = text[:1].upper() + text[1:] + (f" ({flag.notes})." if flag.notes else ".")
    name = "--" + flag.name.replace("_", "-")
    settings: dict[str, Any] = {"help": text, "show_default": False, "rich_help_panel": flag.panel}
    base: Any = flag.hint
    if get_origin(base) is Literal:
        settings["click_type"] = click.Choice([str(option) for option in get_args(base)])
        base = str
    if base is bool:
        name = f"{name}/--no-{name[2:]}"
    annotation = Annotated[base | None, typer.Option(name, **settings)]
    return _keyword(flag.name, annotation, None)
