"""The metrics of a run folder, or of all runs of a sweep, given to trackers as soon as they are there.

What a tracker calls the run, and the last round that it has, is in metrics/trackers.json: a run that goes on later goes
on there, too. A tracker that fails while the run goes on is a warning; what it did not get is given to it again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from artifacts.errors import UsageError
from artifacts.formats.plain_data import read_json, read_mapping
from artifacts.places import TERMS, RunFolder
from artifacts.writing import atomic
from stages.execution.progress import Report
from stages.run_folder.files import metrics_file
from stages.run_folder.metrics import read_recipe
from stages.tracking.tracker import Tracker, open_tracker

_log = logging.getLogger("fedsynth")
_RECORD = "trackers.json"
_SECONDS = 1.0  # between two looks
_NO_METRIC = ("round", "num_examples")
_NO_PARAMETER = ("about", "rounds")  # trackers do not let parameters change, and rounds may be added


@contextmanager
def followed(root: Path, logs: Sequence[str], *, private: bool) -> Iterator[Followed]:
    """Trackers by their names, opened before anything else is done, and closed whatever happens."""
    if private and not logs:
        raise UsageError("--private goes with --log, which it adds to.")
    trackers = dict(open_tracker(text) for text in logs)
    following = Followed(root, trackers, private=private)
    try:
        yield following
        following.look()
    finally:
        following.end()


class Followed:
    def __init__(self, root: Path, trackers: Mapping[str, Tracker], *, private: bool) -> None:
        self._root, self._trackers, self._private = root, trackers, private
        self._begun: dict[tuple[Path, str], str] = {}
        self._looked = 0.0
        self._failed: set[str] = set()

    def report(self, inner: Report) -> Report:
        """A report that also looks for new metrics, once a second at most."""

        def passed(done: int, total: int, text: str) -> None:
            inner(done, total, text)
            self.now_and_then()

        return passed

    def echo(self, inner: Callable[[str], None]) -> Callable[[str], None]:
        """The same for a log that is passed on line by line."""

        def passed(line: str) -> None:
            inner(line)
            self.now_and_then()

        return passed

    def now_and_then(self) -> None:
        if self._trackers and time.monotonic() - self._looked >= _SECONDS:
            self.look()
            self._looked = time.monotonic()

    def look(self) -> None:
        """Give each tracker the rounds that it does not have."""
        if not self._trackers:
            return
        for folder in self._runs():
            for name, tracker in self._trackers.items():
                self._catch(name, partial(self._give, folder, name, tracker))

    def end(self) -> None:
        for name, tracker in self._trackers.items():
            self._catch(name, tracker.end)

    def _runs(self) -> list[RunFolder]:
        """The folder itself, or those of a sweep."""
        first = metrics_file(0)
        if (self._root / first).exists():
            return [RunFolder(self._root)]
        return [RunFolder(path) for path in sorted(self._root.glob("*")) if (path / first).exists()]

    def _give(self, folder: RunFolder, name: str, tracker: Tracker) -> None:
        known = _record(folder).get(name, {})
        run, last = self._begun.get((folder.root, name)), known.get("last_round", -1)
        if run is None:
            run = tracker.begin(_name(self._root, folder), params_of(folder), known.get("run"))
            if run != known.get("run"):
                last = -1
            self._begun[folder.root, name] = run
        while (folder.root / metrics_file(last + 1)).exists():
            last += 1
            values = metrics_of(folder, last, private=self._private)
            if values:
                tracker.log(run, last, values)
            given = {**_record(folder), name: {"run": run, "last_round": last}}
            atomic.write_json(folder.metrics / _RECORD, {**given, "custody": "public"}, force=True)

    def _catch(self, name: str, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            # Trackers raise whatever their servers, drivers and disks do. The run does not depend on them.
            if name not in self._failed:
                why = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
                _log.warning("warning: --log %s: %s. The run goes on; called again it gives the rest.", name, why)
            self._failed.add(name)


def params_of(folder: RunFolder) -> dict[str, str]:
    """The recipe as it was run, flat. Of a source on this machine the last part of its path alone."""
    recipe = read_recipe(folder)
    if not recipe and (folder.root / TERMS).exists():
        terms = read_mapping(folder.root / TERMS)
        recipe = {**terms.get("recipe", {}), "seed": terms.get("seed")}
    flat: dict[str, str] = {}
    for key, value in recipe.items():
        if isinstance(value, dict):
            flat |= {f"{key}.{name}": _said(part) for name, part in value.items()}
        elif key not in _NO_PARAMETER:
            flat[key] = _said(value)
    return flat


def metrics_of(folder: RunFolder, round: int, *, private: bool) -> dict[str, float]:
    """The numbers of a round that are public; with `private` also those that were measured on private data."""
    found = read_json(folder.root / metrics_file(round))
    values = _numbers(found) if private or found.get("custody") == "public" else {}
    if private:
        for path in sorted(folder.root.glob(f"clients/*/private/matching-{round:04}.json")):
            values |= _numbers(read_json(path), f"client_{path.parts[-3]}/")
        for path in sorted(folder.root.glob(f"server/private/descent-{round:04}.json")):
            values |= _numbers(read_json(path), "server/")
    return values


def _numbers(found: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """All that is a number, and the last of each list of numbers."""
    last = {key: value[-1] if isinstance(value, list) and value else value for key, value in found.items()}
    return {
        prefix + key: float(value)
        for key, value in last.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and key not in _NO_METRIC
    }


def _record(folder: RunFolder) -> dict[str, Any]:
    """What was written about trackers before; nothing where that is damaged."""
    try:
        found = read_json(folder.metrics / _RECORD)
    except (OSError, ValueError):
        return {}
    return {key: value for key, value in found.items() if isinstance(value, dict)} if isinstance(found, dict) else {}


def _name(root: Path, folder: RunFolder) -> str:
    """That of the folder; for a point of a sweep with the sweep's before it."""
    name = root.absolute().name
    return name if folder.root == root else f"{name}-{folder.root.name}"


def _said(value: Any) -> str:
    text = str(value)
    return Path(text).name if "/" in text and "://" not in text else text
