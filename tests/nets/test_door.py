"""torchvision and diffusers import next to a CPU-only torch, through one door and no other."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUESTS = {"torchvision", "diffusers"}


def fresh(code: str, *path: Path) -> str:
    """Run `code` in a new interpreter, with `path` in front of its module path."""
    prelude = "import sys\n" + "".join(f"sys.path.insert(0, {str(p)!r})\n" for p in path)
    done = subprocess.run([sys.executable, "-c", prelude + code], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_the_door_is_free():
    code = """
import stages.nets.torchvision_door
print({"torch", "torchvision", "diffusers"} & set(sys.modules))
"""
    assert fresh(code) == "set()"


def test_torchvision_comes_in_whole_for_many_threads_at_once():
    code = """
from concurrent.futures import ThreadPoolExecutor
from stages.nets.torchvision_door import torchvision
with ThreadPoolExecutor(8) as pool:
    (tv,) = set(pool.map(lambda _: torchvision(), range(16)))
assert torchvision() is tv is sys.modules["torchvision"]
import torch
# No remains of a failed import: every submodule is bound to its package.
for name in [name for name in sys.modules if name.startswith("torchvision.")]:
    package, _, child = name.rpartition(".")
    assert getattr(sys.modules[package], child, None) is not None, name
assert tv.datasets.FashionMNIST and tv.models.resnet18 and tv.transforms.ToTensor
print(tuple(tv.utils.make_grid(torch.zeros(4, 1, 8, 8), nrow=2).shape))
"""
    assert fresh(code) == "(3, 22, 22)"


def test_diffusers_comes_in_and_has_its_unet():
    code = """
from stages.nets.torchvision_door import diffusers
d = diffusers()
assert diffusers() is d
from diffusers import UNet2DModel
print(d.UNet2DModel is UNet2DModel, "torchvision" in sys.modules)
"""
    assert fresh(code) == "True True"


@pytest.mark.slow
def test_an_import_that_failed_before_does_no_harm():
    code = """
try:
    import torchvision
except RuntimeError:
    pass
from stages.nets.torchvision_door import torchvision
print(torchvision().models.vgg11.__name__)
"""
    assert fresh(code) == "vgg11"


def test_nothing_is_declared_where_torchvision_imports_by_itself_or_fails_otherwise(tmp_path):
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('compiled with different CUDA')\n")
    code = f"""
from pathlib import Path
from stages.nets.torchvision_door import torchvision
import torch
try:
    torchvision()
except RuntimeError as error:
    print(error, hasattr(torch.ops.torchvision, "nms"))
Path({str(package / "__init__.py")!r}).write_text("healthy = True")
print(torchvision().healthy, hasattr(torch.ops.torchvision, "nms"))
"""
    assert fresh(code, tmp_path).splitlines() == ["compiled with different CUDA False", "True False"]


OWN = """
from dataclasses import dataclass
from typing import Literal
from stages.hyperparameters import hyper
from stages.nets.params import Network
from stages.registry import NETWORKS
{above}

@NETWORKS.register
@dataclass(frozen=True, kw_only=True)
class Own(Network):
    arch: Literal["own"] = hyper("own", "own")

    @staticmethod
    def build(shape):
        from torch import nn
        first = nn.Linear(16, 8)
        {within}
        return nn.Sequential(nn.Flatten(), first, torchvision.ops.Permute([0, 1]), nn.Linear(8, 3))
"""


@pytest.mark.parametrize(
    "places", [("", "import torchvision"), pytest.param(("import torchvision", "pass"), marks=pytest.mark.slow)]
)
def test_a_plugin_may_import_torchvision_by_itself(places, tmp_path):
    """At its top or within `build`; the first weights are those of the seed, whether or not the import failed first."""
    (tmp_path / "own.py").write_text(OWN.format(above=places[0], within=places[1]))
    code = f"""
import torch
from stages.plugins import using
from stages.registry import NETWORKS
from stages.nets.build import new_network
from stages.nets.params import InputShape
with using([{str(tmp_path / "own.py")!r}]):
    params = NETWORKS.from_mapping({{"arch": "own"}})
    shape = InputShape(channels=1, height=4, width=4, num_classes=3)
    a, b = (new_network(params, shape, 5).state_dict() for _ in range(2))
torch.manual_seed(5)
print(all(torch.equal(a[n], b[n]) for n in a), torch.equal(a["1.weight"], torch.nn.Linear(16, 8).weight))
"""
    assert fresh(code) == "True True"


def guests_of(source: str) -> set[str]:
    """The packages among `GUESTS` that a source imports, by statement or by name."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.append(node.module or "")
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called in {"import_module", "__import__"}:
                names.append(str(node.args[0].value))
    return {name.partition(".")[0] for name in names} & GUESTS


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import torchvision.transforms as T", {"torchvision"}),
        ("def f():\n    from diffusers import UNet2DModel", {"diffusers"}),
        ("import importlib\nimportlib.import_module('torchvision.models')", {"torchvision"}),
        ("from stages.nets.torchvision_door import torchvision", set()),
        ("'import torchvision'", set()),
    ],
)
def test_the_scan_sees_what_it_should(source, found):
    assert guests_of(source) == found


def test_there_is_no_other_door():
    files = [p for package in ("stages", "artifacts", "fedsynth_cli") for p in (ROOT / package).rglob("*.py")]
    importers = {str(p.relative_to(ROOT)) for p in files if guests_of(p.read_text())}
    assert importers == {"stages/nets/torchvision_door.py"}
