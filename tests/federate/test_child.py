"""A program as a child: what it says, how it ends, and that it never outlives us."""

import os
import signal
import subprocess
import sys
import time

import pytest

from stages.federate.child import started

HERE = dict(os.environ)
SLEEP = "print('\\x1b[92mINFO\\x1b[0m up', flush=True); import time; time.sleep(60)"


def said(child, pattern, seconds=20):
    until = time.monotonic() + seconds
    while not (match := child.said(pattern)):
        assert time.monotonic() < until
        time.sleep(0.02)
    return match


def gone(pid, seconds=10):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


def test_lines_are_passed_on_without_colours():
    lines = []
    with started([sys.executable, "-c", "print('\\x1b[91mone\\x1b[0m'); print('two')"], HERE, lines.append) as child:
        assert child.wait() == 0
    assert lines == ["one", "two"]
    assert child.said("^one$").group(0) == "one"
    assert child.said("three") is None


def test_it_is_stopped_at_the_end_of_the_block_whatever_happens():
    with pytest.raises(ZeroDivisionError), started([sys.executable, "-c", SLEEP], HERE) as child:
        said(child, "INFO up")
        raise ZeroDivisionError
    assert gone(child.pid)


def test_a_request_to_terminate_interrupts_the_block():
    with pytest.raises(KeyboardInterrupt), started([sys.executable, "-c", SLEEP], HERE) as child:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)
    assert gone(child.pid)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.skipif(sys.platform != "linux", reason="needs PR_SET_PDEATHSIG")
def test_it_ends_when_its_parent_is_killed():
    script = (
        "import os, sys\nfrom stages.federate.child import started\n"
        f"with started([sys.executable, '-c', {SLEEP!r}], dict(os.environ)) as child:\n"
        "    print(child.pid, flush=True)\n    child.wait()\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        parent.kill()
    assert gone(pid)
