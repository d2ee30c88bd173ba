"""What a shell proposes: asked as the script of `--install-completion` asks."""

import pytest

from fedsynth_cli.app import run


@pytest.fixture
def proposed(monkeypatch, capfd):
    def ask(line):
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        monkeypatch.setenv("_FEDSYNTH_COMPLETE", "complete_bash")
        with pytest.raises(SystemExit):
            run([])
        return capfd.readouterr().out.split()

    return ask


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fedsynth run fedlap-dis", ["fedlap-distances"]),
        ("fedsynth recipe l", ["list"]),
        ("fedsynth recipe show feddm-re", ["feddm-real", "feddm-resnet18"]),
        ("fedsynth tune dp-sgd-sc", ["dp-sgd-scaffold"]),
        ("fedsynth run fedlap --preset ", ["demo", "28x28", "paper"]),
        ("fedsynth recipe show fedlap --preset p", ["paper"]),
        ("fedsynth run nonsense --preset ", []),
        ("fedsynth run fedavg --set train-client.loc", ["train-client.local_epochs=", "train-client.local_steps="]),
        ("fedsynth run fedavg --set train-gen", []),
        ("fedsynth run fedavg --set rou", ["rounds="]),
    ],
)
def test_what_is_proposed(proposed, line, expected):
    assert proposed(line) == expected
