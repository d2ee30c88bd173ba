"""Plug-ins: networks, algorithms, encoders and the like that are not part of fedsynth.

A plug-in is a Python file, or an installed distribution with entry points in the groups `fedsynth.networks`,
`fedsynth.algorithms` and so on, one for each family of the registry. Its classes register themselves as the built-in
ones do. Code is loaded only because the operator named it: by `--plugin`, in a recipe or params file, or in
FEDSYNTH_PLUGINS. Reading an artifact never loads anything: a file states which plug-in made it, by name and digest,
and is refused where that one is not loaded.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from artifacts import limits
from artifacts.errors import InputError, UsageError
from stages import registry
from stages.families import Variants
from stages.hyperparameters import PluginRecord
from stages.nets.torchvision_door import opened_for

VARIABLE = "FEDSYNTH_PLUGINS"
_OURS = ("artifacts", "stages", "fedsynth_cli")
_NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)


class MissingPluginError(InputError):
    """A file was made with a plug-in that is not loaded here, or with another version of it."""


@dataclass(frozen=True)
class Plugin:
    """`name` as the operator gave it, a path made absolute; `record` as artifacts state it."""

    name: str
    record: PluginRecord
    modules: tuple[str, ...]
    members: tuple[tuple[Variants[Any], type[Any]], ...]


_loaded: list[Plugin] = []


def families() -> dict[str, Variants[Any]]:
    """The registry's families, by the entry-point group whose plug-ins join them."""
    found = vars(registry).items()
    return {f"fedsynth.{name.lower()}": family for name, family in found if isinstance(family, Variants)}


def loaded() -> tuple[Plugin, ...]:
    return tuple(_loaded)


def records() -> tuple[str, ...]:
    """Of all plug-ins that are loaded, as artifacts state them."""
    return tuple(str(plugin.record) for plugin in _loaded)


def sources() -> dict[str, str]:
    """What is loaded, for another process to load the same: names and records."""
    return {plugin.name: str(plugin.record) for plugin in _loaded}


def load_same(wanted: Mapping[str, str]) -> None:
    """Load what another process has loaded. A file that changed in between is refused."""
    for name, record in wanted.items():
        load(name)
        require(record)


@contextlib.contextmanager
def using(names: Sequence[str]) -> Iterator[None]:
    """Load these and those of FEDSYNTH_PLUGINS; at the end everything that was loaded meanwhile is forgotten."""
    before = len(_loaded)
    try:
        for name in (*names, *filter(None, os.environ.get(VARIABLE, "").split(os.pathsep))):
            load(name)
        yield
    finally:
        for plugin in reversed(_loaded[before:]):
            _forget(plugin)


def load(name: str, beside: Path = Path()) -> Plugin:
    """A plug-in by the path of its file, from the folder `beside`, or by the name of an installed distribution."""
    is_file = name.endswith(".py")
    known = str((beside / name).resolve()) if is_file else name
    for plugin in _loaded:
        if plugin.name == known:
            return plugin
    plugin = _joined(known, *(_file(Path(known)) if is_file else _installed(name)))
    _loaded.append(plugin)
    return plugin


def require(record: str) -> None:
    """Refuse to go on where this plug-in is not loaded, or another version of it is."""
    try:
        wanted = PluginRecord.parse(record)
    except ValueError as error:
        raise UsageError(f"plugins: {error}.") from error
    for plugin in _loaded:
        if plugin.record == wanted:
            return
        if plugin.record.name == wanted.name:
            raise UsageError(f"the plug-in {wanted.name} is {wanted}, but the one that is loaded is {plugin.record}.")
    raise UsageError(f"the plug-in {wanted} is needed. Name it with --plugin, or in {VARIABLE}.")


def plugins_of(params: Mapping[str, Any]) -> Iterator[PluginRecord]:
    """The plug-ins that a file was made with, by its parameters; what is no record is left to `declared`."""
    for name in ("plugin", "net_plugin"):
        if params.get(name) is None:
            continue  # nearly all: an audit asks for every file
        with contextlib.suppress(ValueError):
            yield PluginRecord.parse(params.get(name))


def missing(params: Mapping[str, Any]) -> PluginRecord | None:
    """A plug-in that a file was made with and that is not loaded here."""
    for record in plugins_of(params):
        if all(plugin.record != record for plugin in _loaded):
            return record
    return None


def refuse_missing(path: Path, params: Mapping[str, Any]) -> None:
    """Refuse a file that was made with a plug-in that is not loaded."""
    if (record := missing(params)) is not None:
        try:
            require(str(record))
        except UsageError as error:
            raise MissingPluginError(f"{path}: {error}") from error


# What is run, and the record of it.
_Source = tuple[PluginRecord, "list[tuple[str, Path, bytes] | str]"]


def _file(path: Path) -> _Source:
    if not _NAME.fullmatch(path.stem):
        raise InputError(
            f"the plug-in {path}: its name, which files state, may have up to 64 letters, digits, dots, - and _. "
            "Rename it."
        )
    try:
        source = limits.read_bytes(path, limits.TEXT)
    except OSError as error:
        raise InputError(f"cannot read the plug-in {path}: {error.strerror}. Check the path.") from error
    _refuse_beside(path, source)
    record = PluginRecord(path.stem, "", hashlib.sha256(source).hexdigest())
    return record, [(f"fedsynth_plugin_{path.stem}", path, source)]


def _refuse_beside(path: Path, source: bytes) -> None:
    """Refuse a file that imports what lies beside it, wherever in its code: its digest would not cover that."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError):
        return  # said when it is run
    wanted = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    wanted |= {"." * node.level + (node.module or "") for node in nodes if isinstance(node, ast.ImportFrom)}
    for name in sorted(wanted):
        top = name.partition(".")[0]
        if name.startswith(".") or (top not in _OURS and _lies_beside(path, top)):
            raise InputError(
                f"the plug-in {path} imports {name}, which lies beside it and which its digest would not cover: put it "
                "into the same file, or make a package with entry points of both."
            )


def _lies_beside(path: Path, top: str) -> bool:
    """Whether this module would come from the plug-in's folder. Finding it does not run it."""
    if not (path.with_name(f"{top}.py").exists() or path.with_name(top).is_dir()):
        return False
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:
        spec = None
    if spec is None:
        return True
    places = [*(spec.submodule_search_locations or ()), *([spec.origin] if spec.origin else [])]
    return any(Path(place).resolve().is_relative_to(path.parent.resolve()) for place in places)


def _installed(name: str) -> _Source:
    from importlib import metadata  # 50 ms, which `--help` need not wait for

    try:
        distribution = metadata.distribution(name)
    except (metadata.PackageNotFoundError, ValueError) as error:
        raise InputError(
            f"no plug-in {name!r} is installed. Give the path of a .py file, or the name of a distribution."
        ) from error
    modules = sorted({point.module for point in distribution.entry_points if point.group in families()})
    if not modules:
        raise InputError(f"{name} is no plug-in: it has no entry point in {', '.join(families())}.")
    return PluginRecord(distribution.name, distribution.version, _digest(modules)), list(modules)


def _digest(modules: Sequence[str]) -> str:
    """Of the source files of the top packages that these modules are in. Finding a top package does not run it."""
    total = hashlib.sha256()
    for top in sorted({module.partition(".")[0] for module in modules}):
        spec = importlib.util.find_spec(top)
        if spec is None or spec.origin is None:
            raise InputError(f"the plug-in's package {top} is not there. Install it again.")
        origin = Path(spec.origin)
        files = sorted(origin.parent.rglob("*.py")) if spec.submodule_search_locations else [origin]
        for path in files:
            source = path.read_bytes()
            total.update(f"{path.relative_to(origin.parent).as_posix()}\0{len(source)}\0".encode() + source)
    return total.hexdigest()


def _joined(name: str, record: PluginRecord, sources: list[tuple[str, Path, bytes] | str]) -> Plugin:
    """Run the plug-in; what it registers is marked as its own. One that fails leaves nothing behind."""
    before = {id(family): len(family.classes) for family in families().values()}
    modules_before = set(sys.modules)
    error: BaseException | None = None
    try:
        for source in sources:
            _run(source)
    except (Exception, SystemExit) as failure:  # to leave the program is no way to load
        error = failure
    members = tuple(
        (family, declared) for family in families().values() for declared in family.joined_after(before[id(family)])
    )
    names = tuple(source if isinstance(source, str) else source[0] for source in sources)
    own = {top.partition(".")[0] for top in names}
    modules = tuple(module for module in set(sys.modules) - modules_before if module.partition(".")[0] in own)
    plugin = Plugin(name, record, modules, members)
    if error is not None:
        _forget(plugin)
        if opened_for(error):
            return _joined(name, record, sources)
        raise InputError(f"the plug-in {name} cannot be loaded: {type(error).__name__}: {error}.") from error
    if not members:
        _forget(plugin)
        raise InputError(f"the plug-in {name} registers nothing: decorate its classes, as with @NETWORKS.register.")
    for family, declared in members:
        family.mark(declared, record)
    return plugin


def _run(source: tuple[str, Path, bytes] | str) -> None:
    if isinstance(source, str):
        importlib.import_module(source)
        return
    name, path, text = source
    if name in sys.modules:
        raise ImportError(f"another plug-in of the name {path.stem} is loaded")
    # What is run is what was digested: the file is not read a second time.
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    exec(compile(text, str(path), "exec"), module.__dict__)


def _forget(plugin: Plugin) -> None:
    for family, declared in plugin.members:
        family.forget(declared)
    for module in plugin.modules:
        sys.modules.pop(module, None)
    if plugin in _loaded:
        _loaded.remove(plugin)
