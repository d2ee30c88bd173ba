"""The example that draws Figs. 1 and 3 of DP-FedSAM, from files that `evaluate` wrote."""

import json

import numpy as np
import pytest
from matplotlib.figure import Figure

from stages.recipes.recipe import change, load_recipe


@pytest.fixture(scope="module")
def example(helper):
    return helper("../examples/dp_fedsam_figures.py")


@pytest.fixture
def files(tmp_path, run_on_one_worker, fedsynth_json):
    """Of two short runs on digits: surfaces and norms, by the names of the runs."""
    found = {"surfaces": [], "norms": []}
    for name, rate in (("slow", 0.01), ("fast", 0.5)):
        run = tmp_path / name
        settings = ["partition.clients=2", "init-model.arch=softmax", "init-model.width=null", "init-model.depth=null",
                    f"train-client.learning_rate={rate}"]  # fmt: skip
        run_on_one_worker(change(load_recipe("fedavg"), settings, 2), run, seed=0)
        model, test = run / "server/outbox/model-0002.safetensors", next(run.glob("**/test.parquet"))
        surface, norms = tmp_path / f"surface/{name}.json", run / f"simulation/{name}.json"
        fedsynth_json("evaluate", model, test, "--surface", tmp_path / f"{name}.png", "--points", 3, "-o", surface)
        fedsynth_json("evaluate", run, "--clipping", 0.2, "-o", norms)
        found["surfaces"].append(surface)
        found["norms"].append(norms)
    return found


def test_both_figures_show_what_the_files_say(example, files, tmp_path):
    for which, paths in files.items():
        example.main([which, *map(str, paths), "-o", str(tmp_path / f"{which}.png")])
        assert (tmp_path / f"{which}.png").read_bytes().startswith(b"\x89PNG")
    read = {path.stem: json.loads(path.read_text()) for path in files["norms"]}
    figure = Figure()
    example.norms(read, figure)
    drawn = {line.get_label().partition(",")[0]: line.get_ydata() for line in figure.axes[0].lines}
    for name, one in read.items():
        np.testing.assert_allclose(drawn[name], [one["rounds"][number]["norm_mean"] for number in ("1", "2")])
    assert drawn["fast"][0] > drawn["slow"][0] and list(drawn["C = 0.2"]) == [0.2, 0.2]
    figure = Figure()
    example.surfaces({path.stem: json.loads(path.read_text()) for path in files["surfaces"]}, figure)
    assert [axes.get_title().partition(":")[0] for axes in figure.axes[:2]] == ["slow", "fast"]
