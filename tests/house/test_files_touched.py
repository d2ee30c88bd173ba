"""How many files a new algorithm and a new encode method need, shown by adding one of each: nothing else is changed.

The files are written into an empty folder, as a person would add them to the tree (or bring them as a plug-in), and the
command line is then asked for them. Goals: an algorithm in at most four files, an encode method in at most five, tests
and recipe included.
"""

import subprocess
import sys
import textwrap

ALGORITHM = {
    "stages/methods/params/fedmeek.py": '''
        """FedMeek: an example, whose clients follow half of their gradient."""

        from dataclasses import dataclass
        from typing import ClassVar, Literal

        from stages.hyperparameters import hyper
        from stages.methods.params.local_training import BatchTraining
        from stages.registry import ALGORITHMS


        @ALGORITHMS.register
        @dataclass(frozen=True, kw_only=True)
        class FedMeekTraining(BatchTraining):
            """Local SGD with gradients that are made smaller."""

            additive: ClassVar[bool] = True

            algorithm: Literal["fedmeek"] = hyper("fedmeek", "fedmeek: smaller gradients.")
            meekness: float = hyper(0.5, "fedmeek: factor of the gradients.", symbol="m", panel="fedmeek")

            def client(self, named, own, server):
                from fedmeek_maths import FedMeek

                return FedMeek(self.meekness)
        ''',
    "stages/methods/fedmeek.py": '''
        """The client's side."""


        class FedMeek:
            def __init__(self, meekness):
                self._meekness = meekness

            def correct(self, named):
                for weight in named.values():
                    weight.grad.mul_(self._meekness)

            def finish(self, named, num_steps, rate):
                return {}
        ''',
    "stages/recipes/fedmeek.yaml": """
        about: FedMeek on digits.
        extends: fedavg
        train-client:
          algorithm: fedmeek
        """,
    "tests/methods/test_fedmeek.py": "# its own steps by hand; the contract covers it by its being registered\n",
}

METHOD = {
    "stages/methods/params/halves.py": '''
        """Halves: an example, whose messages carry half of the update."""

        from dataclasses import dataclass
        from typing import ClassVar, Literal

        from stages.hyperparameters import hyper
        from stages.methods.params.encoding import Encoder
        from stages.registry import ENCODERS


        @ENCODERS.register
        @dataclass(frozen=True, kw_only=True)
        class HalvesEncoding(Encoder):
            """Half of the update."""

            performed_by: ClassVar[str] = "halves_stage:encode_half"
            kind: ClassVar[str] = "message"
            reads: ClassVar[tuple[str, ...]] = ("update",)

            method: Literal["halves"] = hyper("halves", "halves: half of the update.")
            factor: float = hyper(0.5, "halves: the factor.", panel="halves")
        ''',
    "stages/updates/halves.py": '''
        """Where files meet the maths: here it only says what it was called with."""


        def encode_half(model, source, out, *, params, key, client, force):
            return {"out": str(out), "called": [str(model), str(source)], "factor": params.factor}
        ''',
    "stages/methods/halves.py": '"""The maths."""\n',
    "stages/recipes/halves.yaml": """
        about: Halves on digits.
        extends: fedavg
        encode:
          method: halves
        """,
    "tests/methods/test_halves.py": "# its maths by hand\n",
}


def added(files, folder, **importable):
    """The files in `folder`, with some of them importable under another name, as if they stood in the package."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip())
    for name, source in importable.items():
        (folder / f"{name}.py").write_text((folder / source).read_text())
    return folder


def asked(folder, code):
    """A fresh interpreter that finds the new files; what it prints."""
    script = f"import sys; sys.path.insert(0, {str(folder)!r})\n{textwrap.dedent(code)}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_algorithm_is_at_most_four_files(tmp_path):
    assert len(ALGORITHM) <= 4
    folder = added(
        ALGORITHM, tmp_path, fedmeek_params="stages/methods/params/fedmeek.py",
        fedmeek_maths="stages/methods/fedmeek.py",
    )  # fmt: skip
    said = asked(
        folder,
        f"""
        import fedmeek_params
        from fedsynth_cli.app import run
        from stages.recipes.plan import check
        from stages.recipes.recipe import load_recipe
        from stages.recipes.secagg_steps import check_additive
        from dataclasses import replace

        recipe = load_recipe({str(folder / "stages/recipes/fedmeek.yaml")!r})
        made = check(recipe)
        print(made["train-client"].to_json()["meekness"], made["train-client"].client({{}}, {{}}, {{}}))
        check_additive(replace(recipe, secure=True))
        assert run(["train-client", "--help"]) == 0
        """,
    )
    assert said.startswith("0.5 <fedmeek_maths.FedMeek object")
    assert "--meekness" in said
    assert "fedmeek" in said


def test_an_encode_method_is_at_most_five_files(tmp_path):
    assert len(METHOD) <= 5
    folder = added(
        METHOD, tmp_path, halves_params="stages/methods/params/halves.py", halves_stage="stages/updates/halves.py"
    )
    said = asked(
        folder,
        f"""
        import halves_params
        from fedsynth_cli.app import run
        from stages.declared import _of_clients
        from stages.recipes.plan import check
        from stages.recipes.recipe import load_recipe

        assert check(load_recipe({str(folder / "stages/recipes/halves.yaml")!r}))["encode"].factor == 0.5
        assert "halves" in _of_clients("encode", "message")
        assert run(["encode", "m", "u", "--method", "halves", "--factor", "0.25", "--json", "-o", "x"]) == 0
        """,
    )
    assert '"factor": 0.25' in said
    assert '"called": ["m", "u"]' in said
