"""An output folder that cannot be written, or a full disk: exit code 3, nothing lost, and the next run completes."""

import resource

import pytest

from artifacts.ledgers import egress

WRITING = ["aggregate-message", "encode-update", "decode-message", "train-data", "evaluate-data", "init-like"]


def leftovers(folder):
    return [path.name for path in folder.rglob("*.part")]


@pytest.mark.parametrize("command", WRITING)
def test_a_folder_below_a_file(run_copy, refused, commands, command):
    """Root too cannot write there, whatever the modes are."""
    arguments, _ = commands(run_copy)[command]
    (run_copy / "file").write_text("not a folder")
    side = "outbox" if command.startswith("encode") else "private"
    out = run_copy / "file" / "00" / side / "out.safetensors"
    key = ["--key", run_copy / "clients/00/private/client.key"] if command.startswith("encode") else []
    text = refused(run_copy, *arguments[: arguments.index("-o")], *key, "-o", out, said=[out])
    assert "cannot write" in text and "Not a directory" in text


@pytest.mark.parametrize("out", ["/proc/fedsynth/m.safetensors", "/proc/m.safetensors"])
def test_a_file_system_that_takes_no_files(run_copy, refused, commands, out):
    arguments, _ = commands(run_copy)["aggregate-message"]
    refused(run_copy, *arguments[:-1], out, said=[out, "cannot write"])


@pytest.mark.parametrize("command", ["keygen", "partition"])
def test_commands_that_make_folders(tmp_path, refused, command):
    (tmp_path / "file").write_text("not a folder")
    out = tmp_path / "file" / "out"
    source = ["digits", "--clients", "2"] if command == "partition" else []
    # The key's spend ledger, which is beside it, is made first.
    named = out.parent if command == "keygen" else out
    refused(tmp_path, command, *source, "-o", out, said=[named, "Not a directory"])


def test_a_name_that_is_too_long(run_copy, refused, commands):
    for command in WRITING:
        arguments, _ = commands(run_copy)[command]
        out = arguments[-1].with_name("x" * 300)
        refused(run_copy, *arguments[:-1], out, said=["File name too long"])


@pytest.mark.parametrize("command", ["encode-update", "aggregate-message", "decode-message"])
def test_a_read_only_file_system(run_copy, commands, in_child, command_line, mounts, forge, command):
    arguments, _ = commands(run_copy)[command]
    arguments[-1].parent.mkdir(exist_ok=True)
    before = forge.snapshot(run_copy)

    def attempt():
        mounts.read_only(run_copy)
        return command_line(*arguments)

    code, err = in_child(attempt)
    assert code == 3 and "Read-only file system" in err and "Traceback" not in err
    assert forge.snapshot(run_copy) == before
    assert in_child(command_line, *arguments)[0] == 0


@pytest.mark.parametrize("command", ["encode-update", "aggregate-message", "decode-message"])
@pytest.mark.parametrize("limit", [0, 1, 1000, 3000])
def test_a_file_that_may_not_grow(run_copy, commands, in_child, command_line, forge, command, limit):
    """The system stops the writer in the middle of the file, as a full disk does."""
    arguments, _ = commands(run_copy)[command]
    before = forge.snapshot(run_copy)

    def attempt():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        return command_line(*arguments)

    code, err = in_child(attempt)
    assert code == 3 and "File too large" in err and str(arguments[-1]) in err and "Traceback" not in err
    assert forge.snapshot(run_copy) == before
    assert in_child(command_line, *arguments)[0] == 0


@pytest.mark.parametrize("room", [0, 1, 200])
def test_a_ledger_that_may_not_grow(run_copy, commands, in_child, command_line, forge, room):
    """There is room for the message, but not for its entry: no message."""
    arguments, _ = commands(run_copy)["encode-update"]
    client, out = run_copy / "clients/00", arguments[-1]
    book = client / "egress.jsonl"
    with egress.locked(book) as opened:
        for number in range(40):
            opened.enter(file=f"old-{number}", sha256="a" * 64, size=1, metadata=forge.metadata("message"))
    before = forge.snapshot(run_copy)

    def attempt():
        limit = book.stat().st_size + room
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        return command_line(*arguments)

    code, err = in_child(attempt)
    assert code == 3 and str(book) in err and "Traceback" not in err
    assert forge.snapshot(run_copy) == before
    assert in_child(command_line, *arguments)[0] == 0
    assert egress.read(book).latest(out.name).bytes == out.stat().st_size


def test_a_full_disk(run_copy, tmp_path, commands, in_child, command_line, mounts):
    """A disk of 64 kB, filled to the last byte, then freed again."""
    arguments, _ = commands(run_copy)["encode-update"]
    disk = tmp_path / "disk"
    disk.mkdir()
    out = disk / "00" / "outbox" / "message.safetensors"
    command = [*arguments[:-1], out, "--key", run_copy / "clients/00/private/client.key"]

    def attempt():
        mounts.small_disk(disk, "64k")
        filler = disk / "filler"
        try:
            with filler.open("wb", buffering=0) as handle:
                while handle.write(bytes(4096)):
                    pass
        except OSError:
            pass
        full = command_line(*command)
        left = [path.name for path in disk.rglob("*") if path.is_file()]
        filler.unlink()
        freed = command_line(*command)
        return full, left, freed, out.exists(), leftovers(disk)

    (code, err), left, freed, exists, parts = in_child(attempt)
    assert code == 3 and "No space left on device" in err and str(out) in err and "Traceback" not in err
    assert left == ["filler"] and freed[0] == 0 and exists and parts == []


def test_an_existing_output_is_refused_and_kept(run_copy, refused, commands):
    for command in WRITING:
        arguments, _ = commands(run_copy)[command]
        out = arguments[-1]
        out.parent.mkdir(exist_ok=True)
        out.write_bytes(b"precious")
        text = refused(run_copy, *arguments, said=[out])
        assert "already exists" in text and "--force" in text
        out.unlink()
