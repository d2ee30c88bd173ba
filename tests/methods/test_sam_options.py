"""SAM as an option of local training: what is refused, and what the command line makes of it."""

import numpy as np
import pytest

from artifacts.formats import tensors_file
from stages.methods.params.fedavg import FedAvgTraining

DP = {"noise_multiplier": 1.0, "sampling_rate": 0.1, "local_steps": 3}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"sam_rho": 0}, "--sam-rho must be above 0, or absent"),
        ({"sam_rho": -0.5}, "--sam-rho must be above 0"),
        ({"sam_rho": float("nan")}, "--sam-rho"),
        ({"adaptive_sam": True}, "--adaptive-sam goes with --sam-rho"),
        ({"sam_rho": 0.5, "adaptive_sam": "perhaps"}, "--adaptive-sam must be of type bool"),
        ({"sam_rho": 0.5, **DP}, "two gradients of the records, which would be two releases"),
    ],
)
def test_refusals(values, said):
    with pytest.raises(ValueError, match=said):
        FedAvgTraining(**values)


def test_on_the_command_line(fedsynth, fedsynth_json, finished_run, tmp_path):
    """The update says how it was made; the same seed and batches without SAM give another."""
    model, data = finished_run / "public/model-0000.safetensors", finished_run / "clients/00/private/data.parquet"
    made = {}
    for name, flags in {
        "plain": [],
        "sam": ["--sam-rho", "0.5"],
        "same": ["--sam-rho", "0.5", "--no-adaptive-sam"],
        "adaptive": ["--sam-rho", "0.5", "--adaptive-sam"],
    }.items():
        out = tmp_path / name / "00/private/update-0001.safetensors"
        fedsynth_json("train-client", model, data, "-o", out, *flags)
        made[name] = out
    update = {name: tensors_file.read(path) for name, path in made.items()}
    params = {name: artifact.metadata.params for name, artifact in update.items()}
    assert (params["sam"]["sam_rho"], params["sam"]["adaptive_sam"]) == (0.5, False)
    assert params["adaptive"]["adaptive_sam"] is True
    assert not {"sam_rho", "adaptive_sam"} & params["plain"].keys()
    key = min(update["sam"].tensors)
    same = np.array_equal(update["sam"].tensors[key], update["same"].tensors[key])
    assert same
    assert not np.array_equal(update["sam"].tensors[key], update["plain"].tensors[key])
    assert not np.array_equal(update["sam"].tensors[key], update["adaptive"].tensors[key])
    out = tmp_path / "dp/00/private/update-0001.safetensors"
    code, _, err = fedsynth("train-client", model, data, "-o", out, "--sam-rho", "0.5", "--noise-multiplier", "1",
                            "--sampling-rate", "0.1", "--local-steps", "2")  # fmt: skip
    assert (code, "two releases" in err) == (2, True), err
    assert not out.exists()
