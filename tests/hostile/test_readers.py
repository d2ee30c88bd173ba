"""Every reader against mutants of small files: it takes them or refuses them in a sentence, and does nothing else.

The same table goes through atheris with `make fuzz`.
"""

import time
from pathlib import Path

import pytest

NAMES = sorted(path.name for path in (Path(__file__).parent / "corpus").iterdir())
SLOW = {"parquet-inspected", "parquet-foreign"}  # a process for each file


@pytest.fixture
def defects(readers, mutations, tmp_path):
    """What a reader does to mutants of its seeds, other than taking or refusing them."""

    def find(reader, seeds, count, most=5.0):
        path, found = readers.place(reader, tmp_path), []
        for number, mutant in enumerate(mutations.mutants(seeds, count, reader.form)):
            began = time.process_time()
            try:
                readers.run(reader, path, mutant)
            except Exception as error:
                found.append(f"mutant {number}, {mutant[:200]!r}: {error!r}")
            seconds = time.process_time() - began
            if seconds > most:
                found.append(f"mutant {number}, {mutant[:200]!r}: {seconds:.1f} s")
        return found

    return find


def test_each_reader_has_a_corpus(readers, forge):
    assert sorted(readers.table(forge)) == NAMES


def test_the_corpora_can_be_written_anew(readers, corpus):
    """Their bytes follow from the libraries' versions, so it is the names that are compared."""
    written = {(reader, name) for reader, name, _ in corpus.corpora()}
    assert written == {(path.parent.name, path.name) for path in readers.CORPUS.glob("*/*")}


@pytest.mark.parametrize("name", NAMES)
def test_a_reader_takes_its_seeds(readers, forge, tmp_path, name):
    """Else mutants of them would say little."""
    reader = readers.table(forge)[name]
    path = readers.place(reader, tmp_path)
    for seed in readers.seeds(name):
        path.write_bytes(reader.build(seed))
        reader.read(path)


@pytest.mark.parametrize("count", [100, pytest.param(5000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_a_reader_takes_or_refuses_whatever_it_meets(readers, forge, defects, name, count):
    found = defects(readers.table(forge)[name], readers.seeds(name), count // (30 if name in SLOW else 1))
    assert not found, f"{len(found)} of {count}, first: {found[0]}"


def test_whatever_yaml_does_to_the_mutator_it_goes_on(mutations):
    """PyYAML raises IndexError for this text; a mutator that raises ends the fuzzing of its reader."""
    assert len(list(mutations.mutants([b"a: !!int ''"], 50, "yaml"))) == 50


def stumbles(path):
    if b"!" in path.read_bytes():
        raise KeyError("planted")


def loops(path):
    if b"!" in path.read_bytes():
        ends = time.process_time() + 0.2
        while time.process_time() < ends:
            pass


@pytest.mark.parametrize(("read", "said"), [(stumbles, "KeyError"), (loops, " s")])
def test_a_planted_defect_is_found(readers, defects, read, said):
    found = defects(readers.Reader(read, "planted"), [b"harmless"], 40, most=0.1)
    assert found and all(text.endswith(said) or said in text for text in found)


def test_a_refusal_that_is_no_sentence_is_found(readers, defects):
    from artifacts.errors import InputError

    def read(_):
        raise InputError("one\ntwo\nthree")

    assert len(defects(readers.Reader(read, "planted"), [b"x"], 5)) == 5
