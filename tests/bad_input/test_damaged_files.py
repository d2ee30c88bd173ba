"""Every command meets every kind of bad file: exit code 3, a message that names the file, nothing written."""

import pickle
import shutil
import struct

import pytest

TENSORS = [
    "aggregate-model", "aggregate-message", "encode-model", "encode-update", "decode-model", "decode-message",
    "apply-message", "train-model", "evaluate-model", "inspect-message",
]  # fmt: skip
DATASETS = ["train-data", "evaluate-data", "init-like", "inspect-data"]


@pytest.fixture(scope="module")
def shared_run(finished_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("damaged") / "run"
    shutil.copytree(finished_run, folder)
    return folder


@pytest.fixture
def refused_with(shared_run, refused, commands):
    """Put other bytes (None: no file) in the place of a command's input, and see it refused by name.

    One run folder serves all: `refused` sees to it that nothing else in it changed.
    """

    def call(command, change):
        arguments, path = commands(shared_run)[command]
        data = path.read_bytes()
        path.unlink()
        try:
            hurt = change(data)
            if hurt is not None:
                path.write_bytes(hurt)
            return refused(shared_run, *arguments, said=[path])
        finally:
            path.unlink(missing_ok=True)
            path.write_bytes(data)

    return call


def flipped(position):
    return lambda data, forge: forge.flip(data, position % len(data), 3)


ANY_DAMAGE = {
    "missing": lambda _, __: None,
    "empty": lambda _, __: b"",
    "truncated to a byte": lambda data, _: data[:1],
    "truncated in the middle": lambda data, _: data[: len(data) // 2],
    "truncated by a byte": lambda data, _: data[:-1],
    "extended": lambda data, _: data + b"\0",
    "a text": lambda _, __: b"Dear server, the model is attached.\n",
    "a pickle": lambda _, __: pickle.dumps({"weights": [1.0] * 100}),
    "zeros": lambda data, _: bytes(len(data)),
}
TENSOR_DAMAGE = ANY_DAMAGE | {
    "bit flipped in the length": flipped(1),
    "bit flipped in the header": flipped(200),
    "bit flipped in the tensors": flipped(-50),
    "oversized header": lambda data, _: struct.pack("<Q", 2**62) + data[8:],
    "header longer than the file": lambda data, _: struct.pack("<Q", len(data)) + data[8:],
    "NaN": lambda data, forge: forge.forge_tensors(data, payload=_with(data, forge, float("nan"))),
    "infinity": lambda data, forge: forge.forge_tensors(data, payload=_with(data, forge, float("inf"))),
    "unknown dtype": lambda data, forge: forge.forge_tensors(data, table=lambda t: _last(t).update(dtype="F9")),
    "unknown field": lambda data, forge: forge.forge_tensors(data, fields=lambda f: f.update(camera="Leica")),
    "a client that is a path": lambda data, forge: forge.forge_tensors(data, fields=lambda f: f.update(client="../x")),
    "another schema": lambda data, forge: forge.forge_tensors(data, fields=lambda f: f.update(schema="x/9")),
}
DATASET_DAMAGE = ANY_DAMAGE | {
    "bit flipped in a page": flipped(300),
    "bit flipped in the footer": flipped(-300),
    "bit flipped in the length": flipped(-6),
    "oversized footer": lambda data, _: data[:-8] + struct.pack("<I", 2**32 - 1) + b"PAR1",
    "unknown codec": lambda data, forge: forge.forge_footer(
        data, lambda f: f["4:list<struct>"][0]["1:list<struct>"][0]["3:struct"].update({"4:i32": 16})
    ),
    "rows without end": lambda data, forge: forge.forge_footer(
        data, lambda f: (f.update({"3:i64": 2**40}), f["4:list<struct>"][0].update({"3:i64": 2**40}))
    ),
}
# `init-model` needs no rows: a forger's lies about them do not reach it. Damage to them does.
NO_ROWS_READ = {("init-like", "unknown codec"), ("init-like", "rows without end")}


def _with(data, forge, value):
    payload = forge.take_apart(data)[2]
    return payload[:-4] + struct.pack("<f", value)


def _last(table):
    return table[list(table)[-1]]


@pytest.mark.parametrize("damage", TENSOR_DAMAGE)
@pytest.mark.parametrize("command", TENSORS)
def test_a_bad_safetensors_file_is_refused_by_name(refused_with, forge, command, damage):
    refused_with(command, lambda data: TENSOR_DAMAGE[damage](data, forge))


@pytest.mark.parametrize(
    ("command", "damage"), [(c, d) for c in DATASETS for d in DATASET_DAMAGE if (c, d) not in NO_ROWS_READ]
)
def test_a_bad_parquet_file_is_refused_by_name(refused_with, forge, command, damage):
    refused_with(command, lambda data: DATASET_DAMAGE[damage](data, forge))


@pytest.mark.parametrize("command", [*TENSORS, *DATASETS])
def test_a_folder_is_no_file(run_copy, refused, commands, command):
    arguments, path = commands(run_copy)[command]
    path.unlink()
    path.mkdir()
    refused(run_copy, *arguments, said=[path])


WRONG_KIND = {
    "aggregate-model": ["update", "message", "dataset"],
    "aggregate-message": ["model", "update", "dataset"],
    "encode-model": ["update", "message", "dataset"],
    "encode-update": ["model", "message", "dataset"],
    "decode-model": ["update", "message", "dataset"],
    "decode-message": ["model", "update", "dataset"],
    "train-model": ["update", "message", "dataset"],
    "train-data": ["model", "update", "message"],
    "evaluate-model": ["update", "message"],  # a dataset in its place is compared with the other: another form
    "evaluate-data": ["model", "update", "message"],
    "init-like": ["model", "update", "message"],
}


@pytest.mark.parametrize(("command", "kind"), [(c, kind) for c, kinds in WRONG_KIND.items() for kind in kinds])
def test_a_file_of_the_wrong_kind_is_refused_by_name(finished_run, refused_with, command, kind):
    client = finished_run / "clients/02"
    others = {
        "model": finished_run / "server/outbox/model-0001.safetensors",
        "update": client / "private/update-0001.safetensors",
        "message": client / "outbox/message-0001.safetensors",
        "dataset": client / "private/data.parquet",
    }
    refused_with(command, lambda _: others[kind].read_bytes())


def reshape(table):
    table["classifier.logits.weight"]["shape"] = [64, 10]


def rename(table):
    table["classifier.logits.weigh_"] = table.pop("classifier.logits.weight")


def grow(table):
    table["classifier.logits.weight"].update(shape=[11, 64], data_offsets=[40, 40 + 11 * 64 * 4])


@pytest.mark.parametrize("change", [reshape, rename, grow])
@pytest.mark.parametrize(
    "command", ["aggregate-message", "decode-message", "encode-update", "train-model", "evaluate-model"]
)
def test_tensors_that_do_not_fit_the_model_are_refused_by_name(refused_with, forge, command, change):
    def forged(data):
        payload = forge.take_apart(data)[2] + (bytes(64 * 4) if change is grow else b"")
        return forge.forge_tensors(data, table=change, payload=payload)

    assert "does not fit the model" in refused_with(command, forged)


def test_the_same_commands_succeed_on_whole_files(run_copy, fedsynth, commands):
    for name, (arguments, _) in commands(run_copy).items():
        code, _, err = fedsynth(*arguments, *([] if name.startswith("inspect") else ["--force"]))
        assert code == 0, f"{name}: {err}"
