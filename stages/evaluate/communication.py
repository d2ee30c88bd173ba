"""What a run sent: the numbers that the Fedssyn paper counts, and the bytes of the files that really went.

The paper (Section 5, «Reduced communication cost», and A.3.3) counts 2·M_s + 2·R·M_c: M_s is the size of the synthetic
data, M_c that of the model, R the number of rounds; control variates are added to M_c where an algorithm sends them.
Its figures show what is meant. 15.5 MB are the 50,000/N synthetic images of ONE of N = 10 clients, and one model goes
up and one down a round: it is the traffic of one client that takes part in every round, whatever N is. We count both
numbers (parameters, pixel values and labels) and, as its Table A.2 does, bytes: one for each number of a synthetic
image, four for each parameter.

With FedLAP and FedDM a synthetic set goes up in every round, and a model down only: R·(M_c + M_k), where M_k is the
size of a client's set (FedDM, Sec. 2.2 and Appendix E), labels and radius included.

With TOFU a proxy goes up and one comes down in a round, images × (pixels + classes) numbers each: that is how the paper
counts, without ratios and scales; all but three cells of its tables follow from it. In its third phase a full update
goes up and a model down, M_c each. On a single device nothing comes down, and its Tables 1 and 4 count the baseline's
|θ| once a round too.

Bytes are those of all clients together: each file in a client's outbox goes up once; a part of the shuffled synthetic
data goes down to one client; the model and the server's state of round r − 1 go down to each client that takes part in
round r, the initial model among them. The last model has no such client: who gets it is not part of training. The
server's proxy of round r goes down to all who took part in it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from artifacts.errors import InputError
from artifacts.formats import Format, dataset_stream, describe, format_named, format_of
from artifacts.formats.dataset_rows import image_shape
from artifacts.metadata import Metadata
from artifacts.places import RunFolder


@dataclass(frozen=True)
class Transfer:
    """One file, needed in `round` (0: before the first); `copies` receivers each got its `size` bytes."""

    kind: str
    round: int
    up: bool
    size: int
    copies: int


@dataclass(frozen=True)
class Communication:
    """`model` is M_c, `states` the control variates that go with it, `synthetic` is M_s; all count numbers.

    `surrogate` is M_k, what a client sends in a round in place of a model; 0 where it sends a model. `proxies` are, by
    round, the numbers that go up in proxies, and those that come down.
    """

    model: int
    states: int
    synthetic: int
    transfers: tuple[Transfer, ...]
    surrogate: int = 0
    proxies: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def one_way(self) -> bool:
        """Whether proxies go up and none comes down: TOFU on a single device."""
        return bool(self.proxies) and not any(down for _, down in self.proxies.values())

    def parameters(self, rounds: int, *, up_only: bool = False) -> int:
        """2·M_s + 2·R·M_c, or R·(M_c + M_k), for the first R rounds: the numbers that one client sends and gets.

        `up_only` leaves out what it gets.
        """
        down = self.model + self.states
        up = self.surrogate or down
        encoded = [numbers for round, numbers in self.proxies.items() if round <= rounds]
        sent = self.synthetic + sum(numbers for numbers, _ in encoded) + (rounds - len(encoded)) * up
        got = self.synthetic + sum(numbers for _, numbers in encoded) + (rounds - len(encoded)) * down
        return sent if up_only else sent + got

    def stored_bytes(self, rounds: int) -> int:
        """The same traffic as Table A.2 counts it: pixels are bytes, and every other number is a float32."""
        return 4 * self.parameters(rounds) - (4 - 1) * 2 * self.synthetic

    def bytes(self, rounds: int, wanted: Callable[[Transfer], bool] = lambda _: True) -> int:
        """Of the files of all clients that were needed for the first `rounds` rounds."""
        return sum(sent.size * sent.copies for sent in self.transfers if sent.round <= rounds and wanted(sent))


@dataclass(frozen=True)
class _File:
    """What a file says it is: its size, and how many numbers it holds; of a proxy, images and residuals."""

    metadata: Metadata
    size: int
    numbers: int

    @property
    def round(self) -> int:
        return self.metadata.round or 0


def read_communication(run: RunFolder) -> Communication:
    """Count what is in the outboxes of a run, from the files themselves."""
    sent = {name: list(_files(run.client(name).outbox)) for name in run.client_names()}
    given = list(_files(run.server.outbox))
    given += [file for file in _files(run.public) if file.metadata.kind == "model"]
    models = [file for file in given if file.metadata.kind == "model"]
    if not models:
        raise InputError(f"{run.root} holds no model, neither in public/ nor in server/outbox/: it is no whole run.")
    takes_part = Counter(round for files in sent.values() for round in {file.round for file in files if file.round})
    transfers = [Transfer(f.metadata.kind, f.round, True, f.size, 1) for files in sent.values() for f in files]
    for file in given:
        if file.metadata.kind == "dataset":  # a part of the shuffled data is one client's
            transfers.append(Transfer("dataset", file.round, False, file.size, 1))
        elif file.metadata.kind == "proxy" or file.metadata.kind.startswith("secagg-"):  # its sender reads it too
            readers = file.metadata.params.get("receivers")  # of shares: one for a client's own file, else all
            copies = takes_part[file.round] if readers is None or len(readers) > 1 else len(readers)
            transfers.append(Transfer(file.metadata.kind, file.round, False, file.size, copies))
        else:
            needed_in = file.round + 1
            transfers.append(Transfer(file.metadata.kind, needed_in, False, file.size, takes_part[needed_in]))
    uploads = [sum(f.numbers for f in files if f.metadata.kind == "dataset") for files in sent.values()]
    sets = [f.numbers for files in sent.values() for f in files if f.metadata.kind == "surrogate"]
    states = [f.numbers for files in sent.values() for f in files if f.metadata.kind == "state"]
    return Communication(
        model=models[0].numbers,
        states=max(states, default=0),
        synthetic=_mean([numbers for numbers in uploads if numbers]),  # every client makes as many, or nearly
        transfers=tuple(transfers),
        surrogate=_mean(sets),
        proxies=_by_round([file for files in sent.values() for file in files], given),
    )


def _by_round(up: Sequence[_File], down: Sequence[_File]) -> dict[int, tuple[int, int]]:
    """What one client sends in proxies, and what it gets, round by round."""
    rounds = sorted({file.round for file in (*up, *down) if file.metadata.kind == "proxy"})

    def each(side: Sequence[_File], round: int) -> int:
        return _mean([file.numbers for file in side if file.metadata.kind == "proxy" and file.round == round])

    return {round: (each(up, round), each(down, round)) for round in rounds}


def _mean(numbers: Sequence[int]) -> int:
    return round(sum(numbers) / len(numbers)) if numbers else 0


def _files(folder: Path) -> Iterator[_File]:
    """The artifacts of one folder. Their headers say what they are; of a dataset the rows are counted."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if format_named(path) is None:
            continue
        if format_of(path) is Format.DATASET:
            found = dataset_stream.scan(path)
            yield _File(found.metadata, found.size, len(found) * (math.prod(image_shape(found.metadata)) + 1))
            continue
        about = describe(path)  # envelopes have bytes, but no numbers
        counted = [s for s in about.specs if about.metadata.kind != "proxy" or s.name in ("images", "residuals")]
        yield _File(about.metadata, path.stat().st_size, sum(math.prod(spec.shape) for spec in counted))
