"""`fedsynth` for scripts and make: each command is a process of its own, forked from one that has imported torch.

A pipeline of twenty commands then waits for torch once. That a command starts from nothing is tested where `fedsynth
run` and the wheel are.
"""

import importlib
import json
import multiprocessing
import os
import shlex
import signal
import socket
import subprocess
import sys
import traceback
from pathlib import Path

CALLER = Path(__file__).with_name("command_caller.py")
IMPORTED = (  # what a command imports when it comes to it
    "torch._dynamo", "sympy", "pyarrow.parquet", "cryptography.hazmat.primitives.ciphers", "sklearn.datasets",
    "scipy.special", "matplotlib.figure", "matplotlib.backends.backend_agg",
)  # fmt: skip


class CommandServer:
    """Serves as long as the block lasts; `path` is a PATH on which `fedsynth` calls it."""

    def __init__(self, folder):
        self._socket = folder / "socket"
        shim = folder / "bin/fedsynth"
        shim.parent.mkdir()
        call = shlex.join([sys.executable, "-SE", str(CALLER), str(self._socket)])
        shim.write_text(f'#!/bin/sh\nexec {call} "$@"\n')
        shim.chmod(0o755)
        self.path = os.pathsep.join([str(shim.parent), str(Path(sys.executable).parent), os.environ["PATH"]])

    def __enter__(self):
        command = [sys.executable, "-P", __file__, str(self._socket)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout.readline() == b"ready\n"
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.communicate()


def serve(path):
    """Fork for each call; the child has the caller's files, folder and environment, and tells it the exit code."""
    from fedsynth_cli.app import run

    for name in IMPORTED:
        importlib.import_module(name)
    start_with = multiprocessing.get_context
    multiprocessing.get_context = lambda _method: start_with("fork")  # the workers of `batch`, for the same reason
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(16)
        os.write(1, b"ready\n")
        while True:
            connection, _ = listening.accept()
            with connection:
                if not os.fork():
                    listening.close()
                    answer(connection, run)


def answer(connection, run):
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        data, (*files, folder), _, _ = socket.recv_fds(connection, 1 << 16, 4)
        while not data.endswith(b"\n"):
            data += connection.recv(1 << 16)
        asked = json.loads(data)
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.fchdir(folder)
        os.environ.clear()
        os.environ.update(asked["environment"])
        code = run(asked["words"])
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        connection.sendall(bytes([code]))
        os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1])
