"""The commands typed one by one, with --json; exit codes; what an error looks like."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from artifacts.formats import tensors_file


def test_the_pipeline_by_hand(fedsynth_json, fedsynth, tmp_path):
    run = tmp_path / "run"
    made = fedsynth_json("partition", "digits", "--clients", "2", "-o", run)
    assert (made["clients"], made["classes"]) == (2, 10)
    assert made["train_examples"] + made["test_examples"] == 1797
    model = run / "public/model-0000.safetensors"
    test = run / "public/test.parquet"
    assert fedsynth_json("init-model", "--arch", "softmax", "--like", test, "-o", model)["parameters"] == 650
    messages = []
    for client in ("00", "01"):
        place = run / "clients" / client
        update, message = place / "private/update-0001.safetensors", place / "outbox/message-0001.safetensors"
        trained = fedsynth_json("train-client", model, place / "private/data.parquet", "-o", update)
        assert (trained["client"], trained["round"], trained["custody"]) == (client, 1, "private")
        sent = fedsynth_json("encode", model, update, "-o", message)
        assert sent["disclosures"] == ["update"]
        assert sent["bytes"] == message.stat().st_size
        messages.append(message)
    after = run / "server/outbox/model-0001.safetensors"
    assert fedsynth_json("aggregate", model, *messages, "-o", after)["messages"] == 2
    before = fedsynth_json("evaluate", model, test, "-o", run / "metrics/round-0000.json")
    metrics = fedsynth_json("evaluate", after, test, "-o", run / "metrics/round-0001.json")
    assert metrics["accuracy"] > before["accuracy"] + 0.3
    assert json.loads((run / "metrics/round-0001.json").read_text())["accuracy"] == metrics["accuracy"]
    assert fedsynth_json("audit", run)["passed"]
    about = fedsynth_json("inspect", messages[0])
    assert (about["kind"], about["custody"], about["client"], about["simulation"]) == (
        "message",
        "outbound",
        "00",
        True,
    )
    code, _, err = fedsynth("evaluate", after, test, "-o", run / "metrics/round-0001.json")
    assert (code, "is there already, with the same bytes" in err) == (0, True)
    code, _, err = fedsynth("evaluate", model, test, "-o", run / "metrics/round-0001.json")
    assert (code, "already exists. Add --force" in err) == (3, True)


def test_an_update_can_be_aggregated_sent_and_applied(fedsynth_json, run_copy):
    """Aggregate as an update, apply it: the same model as aggregating to a model, up to one float32 rounding."""
    model = run_copy / "public/model-0000.safetensors"
    messages = sorted(run_copy.glob("clients/*/outbox/message-0001.safetensors"))
    server = run_copy / "server/private"
    fedsynth_json("aggregate", model, *messages, "--as", "update", "-o", server / "update.safetensors")
    fedsynth_json("decode", model, server / "update.safetensors", "--apply", "-o", server / "applied.safetensors")
    direct = tensors_file.read(run_copy / "server/outbox/model-0001.safetensors")
    applied = tensors_file.read(server / "applied.safetensors")
    assert applied.metadata.round == 1
    for name, tensor in direct.tensors.items():
        np.testing.assert_allclose(applied.tensors[name], tensor, rtol=1e-6, atol=1e-7)


def test_decoding_a_message_gives_the_very_update(fedsynth_json, run_copy):
    model = run_copy / "public/model-0000.safetensors"
    message = run_copy / "clients/01/outbox/message-0001.safetensors"
    out = run_copy / "server/private/decoded.safetensors"
    fedsynth_json("decode", model, message, "-o", out)
    update = tensors_file.read(run_copy / "clients/01/private/update-0001.safetensors")
    decoded = tensors_file.read(out)
    assert (decoded.metadata.kind, decoded.metadata.custody) == ("update", "server")
    assert decoded.payload_sha256 == update.payload_sha256


def test_weights_by_examples_are_a_disclosure(fedsynth_json, run_copy):
    model = run_copy / "public/model-0000.safetensors"
    messages = sorted(run_copy.glob("clients/*/outbox/message-0001.safetensors"))
    out = run_copy / "server/private/weighted.safetensors"
    fedsynth_json("aggregate", model, *messages, "--weights", "examples", "-o", out)
    read = [tensors_file.read(path) for path in messages]
    assert all(set(message.metadata.disclosures) == {"num_examples", "update"} for message in read)
    counts = [message.metadata.counts["num_examples"] for message in read]
    start, result = tensors_file.read(model), tensors_file.read(out)
    for name, tensor in start.tensors.items():
        mean = np.average([message.tensors[name] for message in read], axis=0, weights=counts)
        np.testing.assert_allclose(result.tensors[name], tensor - mean, rtol=1e-5, atol=1e-6)


def test_metrics_of_private_data_are_private(fedsynth_json, finished_run, tmp_path):
    data = finished_run / "clients/00/private/data.parquet"
    out = tmp_path / "metrics.json"
    assert (
        fedsynth_json("evaluate", finished_run / "public/model-0000.safetensors", data, "-o", out)["custody"]
        == "private"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nonsense"], 2, "No such command 'nonsense'.\nTry: fedsynth --help\n"),
        (["run", "fedavgg", "-o", "x"], 2, "Did you mean 'fedavg'? `fedsynth recipe list` lists"),
        (
            ["partition", "mnist", "--clients", "2", "-o", "x"],
            2,
            "folder mnist in this directory write ./mnist",
        ),
        (["partition", "rows.csv", "--clients", "2", "-o", "x"], 3, "fedsynth reads images only"),
        (["keygen"], 2, "--out"),
        (["inspect", "nowhere.safetensors"], 3, "no such file"),
        (["audit", "nowhere"], 3, "nowhere: no such folder"),
        (["run", "nonesuch", "-o", "x"], 2, "no recipe 'nonesuch'"),
        (["run", "fedavg", "--set", "nonsense", "-o", "x"], 2, "stage.key=value"),
        (["run", "fedavg", "--set", "train-client.nonsense=1", "-o", "x"], 2, "unknown parameter 'nonsense'"),
        (["run", "fedavg", "--set", "init-model.arch=lenett", "-o", "x"], 2, "Did you mean 'lenet5'? One of"),
        (["run", "fedavg", "--rounds", "0", "-o", "x"], 2, "--rounds"),
        (["partition", "nonesuch", "--clients", "2", "-o", "x"], 2, "nonesuch"),
        (["partition", "digits", "--clients", "2000", "-o", "x"], 2, "--scheme iid"),
        (["evaluate", "m", "d", "--picture", "p.png", "-o", "x"], 2, "--picture needs --curve"),
    ],
)
def test_errors_are_a_line_or_two_with_the_right_exit_code(fedsynth, tmp_path, monkeypatch, arguments, code, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mnist").mkdir()
    (tmp_path / "rows.csv").write_text("age,label\n71,0\n")
    found, _, err = fedsynth(*arguments)
    assert found == code
    assert said.lower() in err.lower()
    assert 1 <= len(err.strip().splitlines()) <= 2
    assert "Traceback" not in err


def test_debug_shows_the_traceback(tmp_path):
    command = [sys.executable, "-c", "from fedsynth_cli.app import main; main()", "--debug", "inspect", "nowhere"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert "Traceback" in done.stderr


def test_quiet_prints_nothing_and_version_prints_the_version(fedsynth, tmp_path):
    assert fedsynth("keygen", "-q", "-o", tmp_path / "a.key") == (0, "", "")
    code, out, _ = fedsynth("--version")
    assert code == 0
    assert out.startswith("fedsynth 0.")


def test_a_closed_pipe_makes_no_noise(finished_run):
    command = f"{sys.executable} -c 'from fedsynth_cli.app import main; main()' audit {finished_run} --json | true"
    assert subprocess.run(["sh", "-c", command], capture_output=True, text=True).stderr == ""


def test_batch_runs_lines_side_by_side_and_reports_the_first_failure(tmp_path):
    lines = "# a comment\n\nkeygen -q -o a.key && inspect a.key\nkeygen -q -o b.key && keygen -q -o c.key\n"
    command = [sys.executable, "-c", "from fedsynth_cli.app import main; main()", "batch", "--workers", "2"]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, cwd=tmp_path, env=dict(os.environ))
    assert done.returncode == 3  # a key is no artifact
    assert {path.name for path in tmp_path.iterdir()} == {"a.key", "b.key", "c.key", "spend.jsonl"}
    assert "a.key is neither a safetensors nor a Parquet file" in done.stderr


@pytest.mark.parametrize("line", ["keygen 'unclosed", "keygen -o x &&"])
def test_a_batch_line_that_does_not_parse_stops_before_anything_runs(fedsynth, tmp_path, line):
    script = tmp_path / "lines"
    script.write_text(f"keygen -o {tmp_path / 'made.key'}\n{line}\n")
    code, _, err = fedsynth("batch", script)
    assert code == 2
    assert "line 2" in err
    assert not (tmp_path / "made.key").exists()
