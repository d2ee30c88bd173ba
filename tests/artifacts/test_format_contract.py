"""What every format of files keeps to. A format is a class here that says how one of its files is written and read."""

import functools

import numpy as np
import pytest

from artifacts.errors import InputError
from artifacts.formats import Format, dataset_file, describe, envelope_file, format_of, tensors_file
from artifacts.identity.statements import on_ledger


class FormatContract:
    """`write(path)` writes a small file, `readers` are those that must refuse a damaged one, `content` is what comes
    back. `sealed` means that the file shows any damage itself; of envelopes the signatures show the rest."""

    format: Format
    readers = ()
    sealed = True

    @pytest.fixture
    def whole(self, tmp_path, forge):
        path = tmp_path / f"outbox/small{self.format}"
        self.write(path, forge)
        return path, path.read_bytes()

    @pytest.fixture
    def refused(self, forge):
        return functools.partial(forge.refused, read=self.readers[0])

    def test_the_undamaged_file_is_read_and_recognised(self, whole):
        path, _ = whole
        assert format_of(path) is self.format
        assert describe(path).format is self.format
        for read in self.readers:
            read(path)

    def test_the_same_content_gives_the_same_bytes(self, whole, tmp_path, forge):
        self.write(tmp_path / f"again/outbox/small{self.format}", forge)
        assert (tmp_path / f"again/outbox/small{self.format}").read_bytes() == whole[1]

    def test_a_flipped_bit_is_found_at_every_bit_of_the_file(self, refused, whole, forge):
        path, data = whole
        for position in range(len(data) if self.sealed else 0):
            for bit in range(8):
                refused(path, forge.flip(data, position, bit))

    def test_every_truncation_is_found(self, whole):
        path, data = whole
        for length in range(len(data)):
            for read in self.readers:
                with pytest.raises(InputError, match="is not a whole"):
                    read(self.rewritten(path, data[:length]))

    @pytest.mark.parametrize("extra", [b"\0", b"hidden", b"PAR1", b"\0" * 4096])
    def test_bytes_before_and_behind_are_found(self, whole, extra):
        path, data = whole
        for hurt in (data + extra, extra + data):
            with pytest.raises(InputError, match="is not a whole"):
                self.readers[0](self.rewritten(path, hurt))

    def test_a_missing_file_and_a_folder_say_so(self, tmp_path):
        for read in self.readers:
            with pytest.raises(InputError, match=rf"cannot read .*none{self.format}: no such file"):
                read(tmp_path / f"none{self.format}")
            with pytest.raises(InputError, match="Is a directory"):
                read(tmp_path)

    @staticmethod
    def rewritten(path, data):
        path.unlink()  # to overwrite a file in place takes ten times as long on ext4
        path.write_bytes(data)
        return path


class TestTensors(FormatContract):
    format = Format.TENSORS
    readers = (tensors_file.read, tensors_file.read_header)

    def write(self, path, forge):
        forge.write_tensors(path, {"a": np.ones(2, "f4"), "n": np.array(3, "f4")}, kind="state", custody="outbound",
                            client="00", disclosures=("update",))  # fmt: skip


class TestDataset(FormatContract):
    format = Format.DATASET
    readers = (dataset_file.read, dataset_file.read_metadata)

    def write(self, path, forge):
        forge.write_dataset(path, 3, custody="outbound", client="00")


class TestEnvelopes(FormatContract):
    format = Format.ENVELOPES
    readers = (envelope_file.read,)
    sealed = False

    def write(self, path, _forge):
        head = on_ledger("0" * 64, 1, spend="1" * 64, federation="f" * 32, client="00", round=1, simulation=True)
        envelope_file.write(path, (head.signed(bytes(32)),), force=False)


def test_every_format_is_held_to_the_contract():
    assert {one.format for one in FormatContract.__subclasses__()} == set(Format)
