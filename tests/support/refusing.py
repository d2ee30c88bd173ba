"""What every refusal of the command line keeps to."""

import forge


def refused(fedsynth, folder, *arguments, code=3, said=(), left=()):
    """Call a command that must be refused; returns its message.

    It ends with the exit code, says what is wrong in a line or two, and changes no file below `folder`.
    """
    before = forge.snapshot(folder)
    found, out, err = fedsynth(*arguments)
    assert found == code, f"exit code {found}, expected {code}: {err or out}"
    lines = err.strip().splitlines()
    assert 1 <= len(lines) <= 2 and lines[0].startswith("fedsynth: ") and "Traceback" not in err, err
    assert all(len(line) < 1000 for line in lines)
    for words in [said] if isinstance(said, str) else said:
        assert str(words) in err, err
    assert forge.snapshot(folder) == before
    assert not list(folder.rglob("*.part")), "a temporary folder was left"
    return err
