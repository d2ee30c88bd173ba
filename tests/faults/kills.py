"""Kill `fedsynth run` at random moments, again and again, until it has ended; then compare it with one left alone.

Not a test: test_kills.py starts it as a process of its own, which imports torch and never uses it, so that each run can
be forked from it. Prints one JSON object.

    python kills.py FOLDER KILLS SEED RECIPE OPTION…
"""

import contextlib
import importlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path

from artifacts.formats import any_file
from artifacts.ledgers import egress
from artifacts.places import RunFolder


def start(words):
    """A run in a process group of its own, with its workers."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.setsid()
        quiet = os.open(os.devnull, os.O_RDWR)
        os.dup2(quiet, 1)
        fork = multiprocessing.get_context("fork")
        multiprocessing.get_context = lambda _method: fork
        from fedsynth_cli.app import run

        code = run(words)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def ended(child):
    """The exit code, or -9; its workers are gone as well."""
    status = os.waitpid(child, 0)[1]
    while True:
        try:
            os.killpg(child, 0)
            time.sleep(0.01)
        except ProcessLookupError:
            return os.waitstatus_to_exitcode(status)


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check(folder):
    """Each file in an outbox is whole and has its entry."""
    run = RunFolder(folder)
    for place in [run.server, *(run.client(name) for name in run.client_names())]:
        entered = {(entry.file, entry.sha256) for entry in egress.read(place.ledger).entries}
        for path in place.outbox.iterdir() if place.outbox.is_dir() else ():
            assert (path.name, any_file.scan(path).sha256) in entered, f"{path} has no entry"


def main(folder, kills, seed, *words):
    for name in ("torch._dynamo", "pyarrow.parquet", "sklearn.datasets", "scipy.special", "matplotlib.figure",
                 "matplotlib.backends.backend_agg", "stages.recipes.perform", "opacus", "diffusers"):  # fmt: skip
        importlib.import_module(name)
    rng, folder = random.Random(seed), Path(folder)
    whole, out = folder / "whole", folder / "killed"
    begun = time.perf_counter()
    assert ended(start(["run", *words, "-o", str(whole)])) == 0, "the run fails if it is left alone"
    duration = time.perf_counter() - begun
    expected, done, finished = content(whole), 0, 0
    while done < kills:
        child = start(["run", *words, "-o", str(out)])
        time.sleep(rng.uniform(0, duration))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # with its workers: forked ones do not see that it has ended
        code = ended(child)
        check(out)
        done += code == -signal.SIGKILL
        if code == 0 or done == kills:
            if code:
                assert ended(start(["run", *words, "-o", str(out)])) == 0, "a killed run does not go on"
            found = content(out)
            wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
            assert not wrong, f"after {done} kills these differ: {wrong}"
            finished += 1
            shutil.rmtree(out)
        else:
            assert code == -signal.SIGKILL, f"exit code {code}"
    print(json.dumps({"kills": done, "finished": finished, "seconds": round(duration, 2)}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
