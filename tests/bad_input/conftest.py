"""What the tests of bad input share: the checks of a refusal, and ready command lines."""

import contextlib
import io
import os
import pickle
import traceback
from pathlib import Path

import pytest

from fedsynth_cli.app import run as run_command_line


@pytest.fixture
def commands():
    """Command lines of round 1 for a run folder, as `name → (arguments, the input they read)`."""

    def build(run: Path):
        model, client = run / "public/model-0000.safetensors", run / "clients/00"
        update, data = client / "private/update-0001.safetensors", client / "private/data.parquet"
        message, other = (run / f"clients/{n}/outbox/message-0001.safetensors" for n in ("00", "01"))
        out, test = run / "new", run / "public/test.parquet"
        return {
            "aggregate-model": (["aggregate", model, message, other, "-o", out / "m.safetensors"], model),
            "aggregate-message": (["aggregate", model, message, other, "-o", out / "m.safetensors"], message),
            "encode-model": (["encode", model, update, "-o", client / "outbox/new.safetensors"], model),
            "encode-update": (["encode", model, update, "-o", client / "outbox/new.safetensors"], update),
            "decode-model": (["decode", model, message, "-o", out / "u.safetensors"], model),
            "decode-message": (["decode", model, message, "-o", out / "u.safetensors"], message),
            "apply-message": (["decode", model, message, "--apply", "-o", out / "u.safetensors"], message),
            "train-model": (["train-client", model, data, "-o", client / "private/new.safetensors"], model),
            "train-data": (["train-client", model, data, "-o", client / "private/new.safetensors"], data),
            "evaluate-model": (["evaluate", model, test, "-o", out / "e.json"], model),
            "evaluate-data": (["evaluate", model, test, "-o", out / "e.json"], test),
            "init-like": (["init-model", "--arch", "softmax", "--like", test, "-o", out / "m.safetensors"], test),
            "inspect-message": (["inspect", message], message),
            "inspect-data": (["inspect", test], test),
        }

    return build


@pytest.fixture(scope="session")
def in_child():
    """Call a function in a forked process, with its limits, mounts and death its own; returns what it returns."""

    def call(function, *arguments):
        receive, send = os.pipe()
        child = os.fork()
        if not child:
            try:
                answer = (True, function(*arguments))
            except BaseException:
                answer = (False, traceback.format_exc())
            os.write(send, pickle.dumps(answer))
            os._exit(0)
        os.close(send)
        with os.fdopen(receive, "rb") as pipe:
            data = pipe.read()
        os.waitpid(child, 0)
        succeeded, value = pickle.loads(data)
        assert succeeded, value
        return value

    return call


@pytest.fixture(scope="session")
def command_line():
    """The command line inside a forked process: returns (exit code, stderr)."""

    def call(*arguments):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as err:
            code = run_command_line([str(argument) for argument in arguments])
        return code, err.getvalue()

    return call


@pytest.fixture(scope="session")
def mounts(in_child, helper):
    """The module tests/bad_input/mounts.py, where this user may mount."""
    module = helper("bad_input/mounts.py")

    def attempt():
        try:
            module.small_disk("/mnt", "64k")
        except module.CannotMount as error:
            return str(error)
        return ""

    reason = in_child(attempt)
    if reason:
        pytest.skip(f"this user may not mount: {reason}")
    return module
