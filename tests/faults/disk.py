"""A disk that loses what was not synced: from what a command did to its files, the states that a power cut may leave.

Promised are only three things. What a file held when it was synced stays. A name that was given or taken away stays so
once its folder was synced. A rename is one step: nobody finds both names or neither. Everything else that was done by
then may be there or not, in any combination: a later name without an earlier one, a file without its bytes, with half
of them or with zeros.
"""

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

FULL, NONE, HALF, ZEROS = "full", "none", "half", "zeros"


class _Node:
    """A file's content: what is synced, and the changes since."""

    def __init__(self, data=b""):
        self.synced, self.now = data, data

    def sync(self):
        self.synced = self.now

    def write(self, data, offset):
        now = self.now.ljust(offset, b"\0")
        self.now = now[:offset] + data + now[offset + len(data) :]

    def torn(self, how):
        if how == FULL or self.now == self.synced:
            return self.now
        if how == NONE:
            return self.synced
        same = zip(self.synced, self.now, strict=False)
        start = next(
            (place for place, (old, new) in enumerate(same) if old != new), min(len(self.synced), len(self.now))
        )
        if how == HALF:
            return self.now[: start + (len(self.now) - start) // 2]
        # The last bytes came, such as a line's end; those before did not.
        return self.now[:start] + bytes(max(0, len(self.now) - start - 1)) + self.now[-1:]


@dataclass
class _Change:
    """Names that are given (to a node, or a folder: None) or taken away, and the folders that make it last."""

    given: dict = field(default_factory=dict)
    taken: tuple = ()

    @property
    def names(self):
        return {*self.given, *self.taken}

    @property
    def folders(self):
        return {os.path.dirname(name) for name in self.names}  # noqa: PTH120


class Disk:
    """A watcher (seam.py) that follows a command."""

    def __init__(self, root):
        self.root = str(Path(root).resolve())
        self._synced, self._now, self._pending = {self.root: None}, {self.root: None}, []
        for path in sorted(Path(self.root).rglob("*")):
            self._synced[str(path)] = self._now[str(path)] = None if path.is_dir() else _Node(path.read_bytes())
        self.moments = 0

    def before(self, operation):
        """Nothing fails here."""

    def after(self, operation):
        self.moments += 1
        path, target = operation.path.removesuffix(" (deleted)"), operation.target
        node = self._now.get(path)
        match operation.kind:
            case "open" if operation.writing and path not in self._now:
                self._change(_Change({path: _Node()}))
            case "open" if operation.emptied:
                node.now = b""
            case "mkdir":
                self._change(_Change({path: None}))
            case "write" if node is not None:
                if operation.data:
                    node.write(operation.data, operation.offset)
                else:  # copied inside the system
                    node.now = Path(path).read_bytes()
            case "truncate" if node is not None:
                node.now = node.now[: operation.size]
            case "fsync":
                self._sync(path)
            case "link":
                self._change(_Change({target: node}))
            case "rename":
                moved = {target + name[len(path) :]: self._now[name] for name in self._below(path)}
                self._change(_Change(moved, tuple(self._below(path))))
            case "unlink" | "rmdir":
                self._change(_Change(taken=(path,)))

    def _below(self, path):
        return [name for name in self._now if name == path or name.startswith(path + "/")]

    def _change(self, change):
        self._pending.append(change)
        _apply(self._now, change)

    def _sync(self, path):
        node = self._now.get(path)
        if isinstance(node, _Node):
            node.sync()
            return
        for change in [change for change in self._pending if path in change.folders]:
            self._pending.remove(change)
            _apply(self._synced, change)

    def states(self, rng, draws):
        """What a power cut now may leave: the extremes, and some mixtures. Each is {path: bytes, or None: a folder}."""
        every, nothing = [True] * len(self._pending), [False] * len(self._pending)
        yield self._state(nothing, lambda: NONE)
        yield self._state(nothing, lambda: FULL)
        for how in (FULL, NONE, HALF, ZEROS):
            yield self._state(every, lambda how=how: how)
        for _ in range(draws):
            kept = [rng.random() < 0.5 for _ in self._pending]
            yield self._state(kept, lambda: rng.choice((FULL, NONE, HALF, ZEROS)))

    def _state(self, kept, how):
        names, lost = dict(self._synced), set()
        for change, stays in zip(self._pending, kept, strict=True):
            # What happened to a name later cannot have lasted without what happened to it before.
            if stays and not change.names & lost:
                _apply(names, change)
            else:
                lost |= change.names
        content = {}
        for node in names.values():
            if isinstance(node, _Node) and node not in content:
                content[node] = node.torn(how())
        whole = {name: content.get(node) for name, node in names.items()}
        return {name: data for name, data in sorted(whole.items()) if _is_reached(name, whole, self.root)}


def _apply(names, change):
    for name in change.taken:
        names.pop(name, None)
    names.update(change.given)


def _is_reached(name, names, root):
    """A file in a folder whose own name was lost is lost."""
    while name != root:
        name = os.path.dirname(name)  # noqa: PTH120
        if name not in names:
            return False
    return True


def restore(state, root):
    """Make the folder what a state says."""
    shutil.rmtree(root)
    for name, data in state.items():
        path = Path(name)
        if data is None:
            path.mkdir(parents=True)
        else:
            path.write_bytes(data)
            path.chmod(0o600)  # of keys that is asked, of nothing is more
