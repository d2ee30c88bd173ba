"""How many files a new kind of file, generator family, measurement and ledger field need: each is really added.

A copy of the packages gets all four, as a person would add them, and runs them. Goals: a kind in at most five files, a
generator family in at most four, a measurement in at most three, a ledger field in at most three, tests and recipe
included. A pair is an edit of a file that is there: the old text and the new.
"""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.slow  # ten seconds on a core of its own

KIND = {
    "artifacts/kinds.py": (
        '        Kind(\n            name="state",\n',
        """        Kind(
            name="signs",
            format=Format.TENSORS,
            custodies=("outbound",),
            text="a client's update as signs and one length",
            always_discloses=frozenset({"update"}),
            carries="update",
            encoded=True,
            tensors={
                "signs": TensorRule(dtypes=("U8",), dims=("numbers",)),
                "length": TensorRule(dtypes=("F32",), dims=()),
            },
        ),
        Kind(
            name="state",
""",
    ),
    "stages/methods/params/signs.py": '''
        """Signs: an example, whose messages carry the signs of the update."""

        from dataclasses import dataclass
        from typing import ClassVar, Literal

        from stages.hyperparameters import hyper
        from stages.methods.params.encoding import Encoder
        from stages.registry import ENCODERS


        @ENCODERS.register
        @dataclass(frozen=True, kw_only=True)
        class SignsEncoding(Encoder):
            """The signs, and one length for all numbers."""

            performed_by: ClassVar[str] = "stages.compression.signs:encode_signs"
            decoded_by: ClassVar[str | None] = "stages.compression.signs:decoded_signs"
            kind: ClassVar[str] = "signs"
            reads: ClassVar[tuple[str, ...]] = ("update",)

            method: Literal["signs"] = hyper("signs", "signs: the signs of the update.")
        ''',
    "stages/compression/signs.py": '''
        """Both sides of a file of signs."""

        from dataclasses import replace

        import numpy as np

        from artifacts.formats import tensors_file
        from stages.methods.compression import flat, shaped
        from stages.models.messages import exchanged
        from stages.updates.client import Outgoing


        def encode_signs(model, update, out, *, params, key=None, client=None, force=False):
            made = Outgoing.read(model, update, out, kind="update", custody="outbound", key=key, client=client)
            numbers = flat(made.change.tensors)
            sent = {"signs": (numbers > 0).astype(np.uint8), "length": np.array(np.abs(numbers).mean(), np.float32)}
            return made.write(sent, made.described(params, disclosed=[]), force=force)


        def decoded_signs(path, model):
            sent = tensors_file.read(path, kind="signs")
            numbers = (2 * sent.tensors["signs"].astype(np.float32) - 1) * sent.tensors["length"]
            return replace(sent, tensors=shaped(numbers, {n: t.shape for n, t in exchanged(model).items()}))
        ''',
    "stages/recipes/signs.yaml": """
        about: Signs on digits.
        extends: fedavg
        encode:
          method: signs
        """,
    "tests/compression/test_signs.py": "# its maths by hand; the contracts cover the kind and the method\n",
}

GENERATOR = {
    "stages/methods/params/template.py": '''
        """Templates: an example, one image for each class."""

        from dataclasses import dataclass
        from typing import Literal

        from stages.hyperparameters import hyper
        from stages.methods.params.generator import GeneratorTraining, steps_of
        from stages.registry import GENERATORS


        @GENERATORS.register
        @dataclass(frozen=True, kw_only=True)
        class TemplateTraining(GeneratorTraining):
            """One image for each class, and noise around it."""

            family: Literal["template"] = hyper("template", "template: one image for each class.")
            steps: int | None = steps_of(small=3)
            spread: float = hyper(0.1, "Noise around the template.", panel="template")

            def build(self, shape):
                from stages.methods.template import Template

                return Template(self, shape)
        ''',
    "stages/methods/template.py": '''
        """The mean image of each class."""

        import torch

        from stages.methods.generator_training import Part

        _NAME = "template.images"


        class Template:
            def __init__(self, params, shape):
                self._spread = params.spread
                size = (shape.num_classes, shape.channels, shape.height, shape.width)
                self.kept = {_NAME: torch.empty(size, device="meta")}
                self.draws = {}
                self.parts = (Part(name="template", losses=self.losses),)

            def initial(self, generator):
                return {_NAME: torch.rand(self.kept[_NAME].shape, generator=generator)}

            def losses(self, weights, images, labels, draws):
                return (weights[_NAME][labels] - images).square().flatten(1).sum(dim=1)

            def finished(self, weights, images, labels):
                return dict(weights)

            @torch.no_grad()
            def sample(self, weights, labels, generator, *, report):
                images = weights[_NAME][labels]
                report(1, 1)
                return (images + self._spread * torch.randn(images.shape, generator=generator)).clamp(-1, 1)
        ''',
    "tests/generators/test_template.py": "# its loss by hand; the contract covers it by its being registered\n",
}

MEASUREMENT = {
    "stages/evaluate/params/rounds.py": '''
        """`evaluate RUN --count-rounds`: an example."""

        from stages.evaluate.measurement import Measurement, Option

        MEASUREMENT = Measurement(
            place=99, subject="RUN", form="RUN --count-rounds", chosen_by="count_rounds", reports=False,
            function="stages.evaluate.rounds:evaluate_rounds",
            options=(Option(name="count_rounds", type=bool, selects=True, text="Of a run: how many rounds it has."),),
            help="How many models the server gave out.",
        )
        ''',
    "stages/evaluate/rounds.py": '''
        """How many models the server gave out."""

        import json

        from artifacts.writing import atomic


        def evaluate_rounds(run, out, *, force=False):
            found = {"out": str(out), "rounds": len(list((run / "server/outbox").glob("model-*.safetensors")))}
            atomic.write(out, [json.dumps(found).encode()], force=force)
            return found
        ''',
    "tests/evaluate/test_rounds.py": "# counted by hand\n",
}

LEDGER_FIELD = {
    "artifacts/ledgers/egress.py": (
        '    kind: str\n    round: int | None\n    picked: bool\n    privacy: list[Any]\n',
        '    kind: str\n    method: str | None\n    round: int | None\n    picked: bool\n    privacy: list[Any]\n',
        '        "kind": metadata.kind,\n',
        '        "kind": metadata.kind,\n        "method": metadata.method,\n',
    ),
    "tests/artifacts/test_method_field.py": "# what an entry says\n",
}  # fmt: skip

SCRIPT = """
    import json, sys
    from pathlib import Path
    from fedsynth_cli.app import run as fedsynth

    def call(*words):
        code = fedsynth([str(word) for word in words])
        assert code == 0, words

    run = Path("run")
    private, outbox = run / "clients/00/private", run / "clients/00/outbox"
    model, update = run / "public/model-0000.safetensors", private / "update-0001.safetensors"
    call("partition", "digits", "--clients", 2, "-q", "-o", run)
    call("init-model", "--like", run / "public/test.parquet", "--arch", "softmax", "-q", "-o", model)
    call("train-client", model, private / "data.parquet", "--local-epochs", 1, "-q", "-o", update)
    call("encode", model, update, "--method", "signs", "-q", "-o", outbox / "message-0001.safetensors")
    given = run / "server/outbox/model-0001.safetensors"
    call("aggregate", model, outbox / "message-0001.safetensors", "-q", "-o", given)
    generator = private / "generator.safetensors"
    call("train-generator", private / "data.parquet", "--family", "template", "-q", "-o", generator)
    call("synthesize", generator, "--count", 5, "--labels", "uniform", "-q", "-o", outbox / "synthetic.parquet")
    call("evaluate", run, "--count-rounds", "-q", "-o", "rounds.json")
    call("audit", run, "-q")
    entries = [json.loads(line) for line in (run / "clients/00/egress.jsonl").read_text().splitlines()]
    from artifacts.formats import tensors_file
    from stages.recipes.plan import check
    from stages.recipes.recipe import load_recipe
    sent = tensors_file.read(outbox / "message-0001.safetensors")
    print(json.dumps({
        "kind": sent.metadata.kind, "method": check(load_recipe("signs"))["encode"].method,
        "moved": [str(t) for t in (run / "server/outbox").iterdir()],
        "spread": tensors_file.read(generator).metadata.params["spread"],
        "rounds": json.loads(Path("rounds.json").read_text())["rounds"],
        "ledger": {entry["file"]: entry["method"] for entry in entries},
    }))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What the copy with all additions gives."""
    folder = tmp_path_factory.mktemp("tree")
    for package in ("artifacts", "stages", "fedsynth_cli"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in {**KIND, **GENERATOR, **MEASUREMENT, **LEDGER_FIELD}.items():
        path = folder / name
        if isinstance(text, str):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text).lstrip())
        for old, new in zip(text[::2], text[1::2], strict=True) if isinstance(text, tuple) else ():
            before = path.read_text()
            assert before.count(old) == 1, (name, old)
            path.write_text(before.replace(old, new))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT)], cwd=folder, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(folder)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_kind_is_at_most_five_files(found):
    assert len(KIND) <= 5
    assert (found["kind"], found["method"], len(found["moved"])) == ("signs", "signs", 1)


def test_a_generator_family_is_at_most_four_files(found):
    assert len(GENERATOR) <= 4
    assert found["spread"] == 0.1


def test_a_measurement_is_at_most_three_files(found):
    assert len(MEASUREMENT) <= 3
    assert found["rounds"] == 1


def test_a_ledger_field_is_at_most_three_files(found):
    assert len(LEDGER_FIELD) <= 3
    assert found["ledger"] == {"message-0001.safetensors": "signs", "synthetic.parquet": "template"}
