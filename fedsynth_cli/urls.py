"""Every path of a command may be a URL. The command itself sees paths alone: see `exchange`."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from typer.models import ParameterInfo, TyperPath

from artifacts.errors import FedsynthError, UsageError
from artifacts.storage.url import is_url, local_path
from fedsynth_cli.command_list import COMMANDS
from fedsynth_cli.naming import named
from stages.execution.progress import Report


@dataclass(frozen=True)
class Use:
    """How a command uses a path, declared beside the option: `Annotated[Path, WRITTEN, typer.Option(…)]`.

    A path without a declaration is read. `why_local` is why it cannot be a URL.
    """

    written: bool = False
    why_local: str = ""


READ, WRITTEN = Use(), Use(written=True)
KEPT = Use(why_local="a key stays on the machine where it was made")
FOLDER = Use(why_local="torchvision reads a folder")


class PathOrUrl(TyperPath):
    """A path, which is not looked at yet."""

    def __init__(self) -> None:
        super().__init__()
        self.name = "path|url"


def refuse_at_home(command: str | None, words: Sequence[str]) -> None:
    """Refuse URLs where a command needs the folder itself."""
    # A drop folder is no participant's own, and holds only what is sealed.
    pairs = zip(("", *words), words, strict=False)
    own = [word for before, word in pairs if "--drop" not in (before, word.partition("=")[0])]
    texts = [word.partition("=")[2] if word.startswith("-") else word for word in own]
    if command in COMMANDS and COMMANDS[command].at_home and any(is_url(text) for text in texts):
        raise UsageError(
            f"fedsynth {command} works in a participant's own folder, with its key and ledgers, and takes no URL. Give "
            "a path; copy what is in the outbox afterwards."
        )


def with_urls(command: str, function: Callable[..., None]) -> Callable[..., None]:
    """The function of a command, with URLs wherever it takes a path."""
    hints = get_type_hints(function, include_extras=True)
    own = inspect.signature(function).parameters
    paths = {name for name in own if is_path(hints[name])}
    uses = {name: use_of(hints[name]) for name in own if name in paths or name == COMMANDS[command].name_or_path}
    parameters = [
        parameter.replace(annotation=_retyped(hints[name]) if name in paths else hints[name])
        for name, parameter in own.items()
    ]

    def call(values: dict[str, Any]) -> None:
        function(**values | {name: _each(Path, values[name]) for name in paths})

    def wrapper(**values: Any) -> None:
        if any(is_url(text) for name in uses for text in texts_of(values[name])):
            _exchanged(command, values, uses, call)
        else:
            call(values)

    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    wrapper.__name__, wrapper.__doc__ = function.__name__, function.__doc__
    return wrapper


@contextlib.contextmanager
def run_folder(out: str, *, secure: bool) -> Iterator[tuple[Path, Callable[[Report], Report]]]:
    """The folder that a run works in, and what its reports pass through: of a URL, what is done is copied up there."""
    if not is_url(out):
        yield Path(out), lambda report: report
        return
    path = local_path(out)
    if path is not None:
        yield path, lambda report: report
        return
    from artifacts.storage.remote import Remote
    from fedsynth_cli.exchange import refuse_leaving
    from stages.run_folder.mirror import mirrored

    if secure:
        raise UsageError(
            "secure aggregation makes keys that come again from no seed, and keys are never copied to a store. With "
            "secure=true --out is a path."
        )
    place = Remote.parse(out)
    refuse_leaving(place)
    with mirrored(place) as mirror, named({str(mirror.root): str(place)}):
        yield mirror.root, mirror.pushing
        mirror.push()


def is_path(hint: Any) -> bool:
    """Whether a parameter is declared as a path, several, or perhaps none."""
    return hint is Path or any(is_path(part) for part in get_args(hint) if isinstance(part, type) or get_origin(part))


def use_of(hint: Any) -> Use:
    """What a parameter's annotation declares."""
    return next((note for note in get_args(hint) if isinstance(note, Use)), READ)


def texts_of(value: Any) -> list[str]:
    """What was typed for a parameter: nothing, one text or several."""
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def _exchanged(
    command: str, values: dict[str, Any], uses: dict[str, Use], call: Callable[[dict[str, Any]], None]
) -> None:
    from artifacts.writing.scratch import cache_folder, scratch
    from fedsynth_cli.exchange import Exchange

    with scratch(cache_folder(), "url") as folder:
        exchange = Exchange(command, folder, force=bool(values.get("force")), private=values.get("private") is True)
        local = {name: _each(functools.partial(exchange.local, name, use), values[name]) for name, use in uses.items()}
        with named(exchange.names):
            exchange.fetch()
            try:
                call(values | local)
            except FedsynthError:
                exchange.put()  # what was written is whole: a page whose audit failed, for one
                raise
            exchange.put()


def _each(change: Callable[[str], Any], value: Any) -> Any:
    if value is None or isinstance(value, str):
        return None if value is None else change(value)
    return [change(text) for text in value]


def _retyped(hint: Any) -> Any:
    """The annotation with text in the place of the path: `Path` itself would make one slash of two."""
    base, *notes = get_args(hint)
    about = copy.copy(next(note for note in notes if isinstance(note, ParameterInfo)))
    about.click_type = TyperPath() if use_of(hint).why_local else PathOrUrl()
    parts = get_args(base)
    if base is Path:
        return Annotated[str, about]
    if Path in parts and get_origin(base) is list:
        return Annotated[list[str], about]
    return Annotated[list[str] | None if list[Path] in parts else str | None, about]
