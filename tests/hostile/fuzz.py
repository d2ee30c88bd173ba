"""`make fuzz`: all readers under atheris, so many executions in all; what they must not do is reported with its input.

Each reader is a process of its own. A defect is an exception that is not a refusal, more than 5 s of computing for one
input, or more than 1 GB of memory. First the target looks whether it would find some that are planted. What came of
a reader is kept if it has no defect, so that an interrupted command goes on with the others; --fresh begins anew.
"""

import argparse
import collections
import functools
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SECONDS, MEGABYTES = 5, 1024
BLOCKED = 60  # seconds after which libFuzzer ends what computes nothing and does not return either
LONGEST = 1 << 14  # bytes of a mutant
ATTEMPTS = 5  # of a reader that ended its process
PLANTED = ("planted-exception", "planted-hang", "planted-memory", "planted-abort")
INSTRUMENTED = ["artifacts", "stages", "fedsynth_cli", "yaml", "tomllib", "json"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=1_000_000, help="in all, divided among the readers")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", action="append", help="a reader; may be repeated")
    parser.add_argument("--out", type=Path, default=ROOT / "runs/fuzz", help="findings, and the corpora as they grew")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fresh", action="store_true", help="fuzz again what is kept")
    parser.add_argument("--reader", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.reader:
        fuzz(given.reader, given.executions, given.out, given.seed)
    sys.exit(fuzz_all(given))


# The process of one reader


def fuzz(name, executions, out, seed):
    import atheris

    sys.path += [str(HERE), str(HERE.parent / "support")]
    with atheris.instrument_imports(include=INSTRUMENTED):
        import forge
        import mutations
        import readers
    reader = planted(name, readers) if name in PLANTED else readers.table(forge)[name]
    given = [readers.CORPUS / name] if name not in PLANTED else []
    scratch = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
    path, log = readers.place(reader, Path(scratch.name)), Log(out, executions)

    def mutate(data, most, seed):
        rng = random.Random(seed)
        return mutations.mutate(data, rng, reader.form)[:most] if rng.random() < 0.5 else atheris.Mutate(data, most)

    def execute(data):
        began = time.process_time()
        try:
            log.taken += readers.run(reader, path, data)
        except Exception as error:
            log.defect(where(error), data)
        if time.process_time() - began > SECONDS:
            log.defect(f"more than {SECONDS} s of computing", data)
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > MEGABYTES << 10:
            log.defect(f"more than {MEGABYTES} MB of memory", data)
            log.end()
        log.count += 1
        if log.defects and name in PLANTED:
            log.end()
        if log.count % 500 == 0:
            log.write()
        if log.count >= executions:
            scratch.cleanup()
            log.end()

    grown = out / "corpus"
    grown.mkdir(parents=True, exist_ok=True)
    options = [
        f"-seed={seed}", f"-max_len={LONGEST}", f"-timeout={BLOCKED}", f"-rss_limit_mb={2 * MEGABYTES}",
        f"-artifact_prefix={out}/ended-", "-print_final_stats=0", "-verbosity=0", str(grown), *map(str, given),
    ]  # fmt: skip
    atheris.Setup([sys.argv[0], *options], execute, custom_mutator=mutate)
    atheris.Fuzz()


def planted(name, readers):
    """A reader with a defect in it, which must be found."""

    def read(path):
        if b"!" not in path.read_bytes():
            return
        match name.partition("-")[2]:
            case "exception":
                raise KeyError("planted")
            case "hang":
                ends = time.process_time() + SECONDS + 1
                while time.process_time() < ends:
                    pass
            case "memory":
                _ = bytes(bytearray(b"x") * (MEGABYTES << 20))
            case "abort":
                os.abort()

    return readers.Reader(read, "planted")


def where(error):
    """What was raised, and in which line of the project, whatever the input was."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [
        frame for frame in frames if ROOT in Path(frame.filename).parents and HERE not in Path(frame.filename).parents
    ]
    last = (ours or frames)[-1]
    return f"{type(error).__name__} in {Path(last.filename).name}:{last.lineno} ({str(error)[:100]!r})"


class Log:
    """What one process did so far, on the disk in case that it ends."""

    def __init__(self, out, executions):
        self._out, self.executions, self.count, self.taken, self.defects = out, executions, 0, 0, {}
        self._began = time.process_time()

    def defect(self, what, data):
        """Each once: the same line again is the same defect."""
        known = what.partition(" (")[0]
        if known not in self.defects:
            file = self._out / f"found-{len(self.defects):02}"
            file.write_bytes(data)
            self.defects[known] = f"{what}: {file}"
            self.write()

    def write(self):
        seconds = time.process_time() - self._began
        stated = {"count": self.count, "taken": self.taken, "seconds": seconds, "defects": [*self.defects.values()]}
        (self._out / "log.json").write_text(json.dumps(stated))

    def end(self):
        self.write()
        os._exit(0)


# The process that starts them


def fuzz_all(given):
    missed = [name for name in PLANTED if not one(name, 20_000, given.out, given.seed)["defects"]]
    if missed:
        print(f"this target finds nothing: {', '.join(missed)} was missed", file=sys.stderr)
        return 1
    print(f"planted defects found: {len(PLANTED)} of {len(PLANTED)}")
    shares = shares_of(given.only)
    total, left = sum(shares.values()), collections.Counter()
    with ThreadPoolExecutor(given.jobs) as pool:
        asked = {name: max(100, round(given.executions * share / total)) for name, share in shares.items()}
        works = {name: pool.submit(kept, name, count, given) for name, count in asked.items()}
        for name, work in works.items():
            stated = work.result()
            speed = stated["count"] / max(stated["seconds"], 1e-9)
            print(
                f"{name:24} {stated['count']:>9,} executions  {speed:>7,.0f}/s  {stated['taken']:>9,} taken", flush=True
            )
            for defect in stated["defects"]:
                print(f"    {defect}")
            left.update(executions=stated["count"], defects=len(stated["defects"]))
    print(f"{left['executions']:,} executions of {len(shares)} readers, {left['defects']} defects")
    return 1 if left["defects"] else 0


def shares_of(only):
    """How the executions are divided; asked in a process of its own, so that this one imports nothing heavy."""
    code = "import forge, json, readers; print(json.dumps({n: r.share for n, r in readers.table(forge).items()}))"
    paths = os.pathsep.join([str(HERE), str(HERE.parent / "support")])
    stated = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, env=os.environ | {"PYTHONPATH": paths}
    )
    shares = json.loads(stated.stdout)
    unknown = set(only or ()) - shares.keys()
    if unknown:
        sys.exit(f"no reader {', '.join(sorted(unknown))}. Known: {', '.join(shares)}")
    return {name: share for name, share in shares.items() if not only or name in only}


def kept(name, executions, given):
    """What came of a reader: found before with the same code, executions and seed, or now."""
    file = given.out / name / "ended.json"
    same = {"commit": commit(), "executions": executions, "seed": given.seed}
    before = json.loads(file.read_text()) if file.exists() and not given.fresh else {}
    if "dirty" not in same["commit"] and same.items() <= before.items():
        return before["stated"]
    stated = one(name, executions, given.out, given.seed)
    if not stated["defects"]:
        file.write_text(json.dumps({**same, "stated": stated}))
    return stated


@functools.cache
def commit():
    asked = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return asked.stdout.strip() or "dirty"


def one(name, executions, out, seed):
    """Fuzz one reader to the end; if its process dies, that is a defect, and another one goes on."""
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    for old in [path for pattern in ("found-*", "ended-*", "output-*", "log.json") for path in folder.glob(pattern)]:
        old.unlink(missing_ok=True)
    stated = {"count": 0, "taken": 0, "seconds": 0.0, "defects": []}
    for attempt in range(ATTEMPTS):
        command = [sys.executable, __file__, "--reader", name, "--executions", str(executions - stated["count"])]
        said = folder / f"output-{attempt}.txt"
        with said.open("w") as output:
            code = subprocess.run(
                [*command, "--out", folder, "--seed", str(seed + attempt)], stdout=output, stderr=output
            ).returncode
        log = folder / "log.json"
        found = json.loads(log.read_text()) if log.exists() else {"count": 0, "taken": 0, "seconds": 0, "defects": []}
        log.unlink(missing_ok=True)
        stated = {key: stated[key] + found[key] for key in stated}
        if code:
            inputs = ", ".join(str(path) for path in sorted(folder.glob("ended-*"))) or f"see {said}"
            stated["defects"].append(f"the process ended with {code}: {inputs}")
        if stated["count"] >= executions or name in PLANTED:
            break
    return stated


if __name__ == "__main__":
    main()
