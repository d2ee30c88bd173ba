"""How long a person waits for `--help`, and whether torch was imported for it.

Against an empty Python, and against the help of a command line of one empty command, made with the same library.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from measuring import Row, Setting, compared, take_turns

TITLE = "How long `--help` takes"
_MAIN = "from fedsynth_cli.app import main; main()"
_EMPTY_COMMAND = """
import typer
app = typer.Typer()
@app.command()
def nothing(): pass
app()
"""
_TORCH_SEEN = """
import sys
from fedsynth_cli.app import run
run(sys.argv[1:])
sys.stderr.write("yes" if "torch" in sys.modules else "no")
"""


def measure(setting: Setting) -> Iterator[Row]:
    commands = {"fedsynth --help": ["--help"]}
    if not setting.smoke:
        commands["fedsynth train-client --help"] = ["train-client", "--help"]
    peers = {"python -c pass": _Start("pass", []), "the help of an empty command": _Start(_EMPTY_COMMAND, ["--help"])}
    sides = {name: _Start(_MAIN, words) for name, words in commands.items()}
    taken = take_turns({**peers, **sides}, 1 if setting.smoke else 5)
    for name, words in commands.items():
        answer = subprocess.run([sys.executable, "-c", _TORCH_SEEN, *words], capture_output=True, text=True, check=True)
        what = f"{name} (torch imported: {answer.stderr.split()[-1]})"
        for peer in peers:
            yield compared(what, peer, taken[name], taken[peer])


class _Start:
    """A fresh Python that runs some code with these words on its command line."""

    def __init__(self, code: str, words: list[str]) -> None:
        self._command = [sys.executable, "-c", code, *words]

    def __call__(self) -> None:
        subprocess.run(self._command, check=True, stdout=subprocess.DEVNULL)
