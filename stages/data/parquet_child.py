"""`python -P -m stages.data.parquet_child TASK ASKED FILE…`: parses what nobody has checked, and may die of it.

Answers are on stdout in frames: the length of a JSON object, the length of what follows it, both. The last one is
`{"end": true}`, or `{"error": …}`; where neither comes, the process was ended.
"""

from __future__ import annotations

import json
import os
import resource
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FRAME = struct.Struct("<IQ")
_SECONDS, _SECONDS_A_MIB = 20, 1


def main() -> None:
    task, asked, *names = sys.argv[1:]
    files = [Path(name) for name in names]
    from artifacts import limits
    from artifacts.errors import InputError
    from stages.data import parquet_tables as tables

    _limit(files, limits.FOREIGN_MEMORY.most)
    file = files[0]
    try:
        for number, file in enumerate(files):
            _send({"file": number})
            match task:
                case "describe":
                    _send(tables.describe(file))
                case "footers":
                    _send(tables.footer(file, tables.Asked(**json.loads(asked))))
                case "rows":
                    for about, images in tables.batches(file, tables.Asked(**json.loads(asked))):
                        _send(about | {"sizes": [len(image) for image in images]}, images)
        _send({"end": True})
    except InputError as error:
        _send({"error": str(error)})
    except BrokenPipeError:
        pass  # the caller has heard enough
    except Exception as error:
        _send({"error": f"{file}: it cannot be read as Parquet, or is damaged ({tables.reason(error)})."})


def _limit(files: Sequence[Path], memory: int) -> None:
    """From here on: so much more memory, so many seconds, no file written, no image of the process kept."""
    seconds = _SECONDS + _SECONDS_A_MIB * (sum(file.stat().st_size for file in files) >> 20)
    wanted = {resource.RLIMIT_CPU: seconds, resource.RLIMIT_FSIZE: 0, resource.RLIMIT_CORE: 0}
    if sys.platform == "linux":
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        wanted[resource.RLIMIT_AS] = taken + memory
    for which, most in wanted.items():
        _, hard = resource.getrlimit(which)
        # The hard limit stays: at the soft one of its seconds a process hears why it ends.
        resource.setrlimit(which, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _send(about: Any, parts: Sequence[bytes] = ()) -> None:
    text = json.dumps(about).encode()
    for part in (FRAME.pack(len(text), sum(map(len, parts))), text, *parts):
        sys.stdout.buffer.write(part)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
    os._exit(0)  # Arrow's threads need not be waited for
