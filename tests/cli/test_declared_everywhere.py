"""One declaration, three places: every parameter is in `--help`, in the params file and in the file that is written."""

import dataclasses
import functools
from typing import get_args, get_type_hints

import click
import pytest
import typer
import yaml

from artifacts.errors import InputError
from artifacts.formats import tensors_file
from artifacts.kinds import DATASET_PARAMS
from artifacts.metadata import Metadata
from fedsynth_cli.commands import load
from stages.catalogue import DECLARED
from stages.declared import check_params
from stages.families import Variants
from stages.generators.file import described, generator_params
from stages.hyperparameters import By
from stages.models.file import network_of
from stages.nets.generator_params import ImageShape
from stages.recipes.declared import parameters
from stages.recipes.step import Step
from stages.registry import ALGORITHMS, ENCODERS, GENERATORS, RULES

# Values for parameters that have no default; `secagg` is a group, whose terms are options of `collect`.
NEEDED = {"clients": 2, "clip_norm": 1.0, "noise_multiplier": 1.0, "sampling_rate": 0.5}
# What a command asks for unless another option stands in for it.
USUAL = {"partition": {"clients": 2}, "synthesize": {"count": 10}}
COMMANDS = [command for command in DECLARED if command != "secagg"]


def members(declared):
    """(the key's value, the class) of each member; a class on its own has no key."""
    if not isinstance(declared, Variants):
        return [({}, declared)]
    return [({declared.key: word}, member) for member in declared.classes for word in declared.words_of(member)]


CASES = [
    pytest.param(command, key, member, id=f"{command} {' '.join(key.values())}".strip())
    for command in COMMANDS
    for key, member in members(DECLARED[command])
]


@functools.cache
def options_of(command):
    """The options of a command by parameter name, as the command line has them."""
    app = typer.Typer()
    app.command(command)(load(command))
    made = typer.main.get_command(app)
    return {option.name: option for option in made.params if isinstance(option, click.Option)}


def fields_of(member):
    return [f for f in dataclasses.fields(member) if f.name in member.names()]


def values_of(member, key):
    """The member's key, and a value for whatever must be given."""
    hints = get_type_hints(member)
    needed = [f.name for f in fields_of(member) if f.default is None and type(None) not in get_args(hints[f.name])]
    return {**{name: NEEDED[name] for name in needed}, **key}


@pytest.mark.parametrize(("command", "key", "member"), CASES)
def test_every_parameter_is_an_option_whose_help_has_its_default(command, key, member):
    options = options_of(command)
    for field in fields_of(member):
        assert field.name in options, f"--{field.name} is no option of {command}"
        said = options[field.name].help
        about = field.metadata
        assert about["text"].rstrip(".").lower() in said.lower()
        assert about["symbol"] in said
        if field.name not in key and field.default is not None and not isinstance(field.default, bool):
            assert f"default {field.default}" in said


@pytest.mark.parametrize(("command", "key", "member"), CASES)
def test_every_parameter_can_come_from_a_file_and_goes_into_the_metadata(command, key, member):
    """What the metadata say is read back as the same parameters; nothing idle is there."""
    values = {**USUAL.get(command, {}), **values_of(member, key)}
    step = Step(command=command, owner="00", round=1, out="x", params=values)
    params = parameters(step)
    assert type(params) is member
    said = params.to_json()
    for field in fields_of(member):
        when, value = field.metadata["when"], getattr(params, field.name)
        effective = value is not None and (when is None or when.holds(params))
        assert (field.name in said) == effective, field.name
        assert not effective or said[field.name] == value
        assert not isinstance(value, By), "a default is resolved when the class is made"
    assert said.keys() <= member.names()
    read = yaml.safe_load(yaml.safe_dump({command: said}))[command]
    assert parameters(dataclasses.replace(step, params=read)) == params


# What makes the slow methods quick, and the files that a member needs beside its inputs.
QUICK = {
    "tofu": {"images": 2, "iterations": 2, "least_cosine": 0},
    "public-images": {"images": 16, "iterations": 5, "least_cosine": 0},
    "fedlap": {"images_per_class": 1, "points": 1, "batches": 1, "image_steps": 1, "radius_steps": 1},
    "feddm": {"images_per_class": 1, "iterations": 1},
}


def flags(params):
    """As on the command line: `--name value`, a switch by its own name."""
    words = []
    for name, value in params.items():
        flag = f"--{name.replace('_', '-')}"
        words += [flag if value else f"--no-{flag[2:]}"] if isinstance(value, bool) else [flag, value]
    return words


def stated(path, declared, given):
    """The parameters of a file, which must be those of the declaration, all that have an effect and no other."""
    params = tensors_file.read(path).metadata.params
    expected = declared.from_mapping(given).to_json()
    assert {name: params.get(name) for name in expected} == expected
    return params.keys() - expected.keys()


@pytest.fixture(scope="module")
def rounds(tmp_path_factory, softmax_run):
    """For each algorithm a client's folder with one round of it; made when it is asked for."""
    return tmp_path_factory.mktemp("rounds")


def train(fedsynth_json, run, folder, algorithm):
    update = folder / algorithm / "00/private/update-0001.safetensors"
    if not update.exists():
        model, data = run / "public/model-0000.safetensors", run / "clients/00/private/data.parquet"
        keeps = ALGORITHMS.chosen({"algorithm": algorithm}).keeps_state
        state = ["--state-out", update.with_name("state-0001.safetensors")] if keeps else []
        fedsynth_json("train-client", model, data, "--algorithm", algorithm, *state, "-o", update)
        (update.parent / "client.key").write_bytes((run / "clients/00/private/client.key").read_bytes())
        (update.parent / "client.key").chmod(0o600)
    return update


@pytest.mark.parametrize("algorithm", ALGORITHMS.words)
def test_an_update_states_how_it_was_trained(fedsynth_json, finished_run, rounds, algorithm):
    update = train(fedsynth_json, finished_run, rounds, algorithm)
    assert stated(update, ALGORITHMS, {"algorithm": algorithm}) == set()


@pytest.mark.parametrize("method", ENCODERS.words)
def test_what_leaves_states_how_it_was_made(fedsynth_json, finished_run, rounds, method):
    encoder = ENCODERS.chosen({"method": method})
    algorithm = next((w for w in ALGORITHMS.having("keeps_state")), "") if "state" in encoder.reads else "fedavg"
    update = train(fedsynth_json, finished_run, rounds, algorithm)
    source = {
        "update": update, "state": update.with_name("state-0001.safetensors"),
        "data": finished_run / "clients/00/private/data.parquet",
    }[encoder.reads[0]]  # fmt: skip
    given = {"method": method, **QUICK.get(method, {})}
    out = update.parents[1] / f"outbox/{method}.safetensors"
    fedsynth_json("encode", finished_run / "public/model-0000.safetensors", source, *flags(given), "-o", out)
    assert tensors_file.read(out).metadata.kind == encoder.kind
    assert stated(out, ENCODERS, given) == set()
    metadata = tensors_file.read(out).metadata
    check_params(out, metadata)
    for less in without_each(metadata, metadata.params):
        with pytest.raises(InputError, match=rf"{out.name}: its parameters are not those of encode"):
            check_params(out, less)


def without_each(metadata, names):
    """The metadata without one parameter each."""
    for left_out in names:
        yield dataclasses.replace(metadata, params={n: v for n, v in metadata.params.items() if n != left_out})


def test_a_model_that_leaves_out_a_parameter_of_its_network_or_rule_is_refused(finished_run):
    path = finished_run / "server/outbox/model-0001.safetensors"
    metadata = tensors_file.read(path).metadata
    network_of(metadata, path)
    check_params(path, metadata)
    for less in without_each(metadata, [name for name in metadata.params if name.startswith("net_")]):
        with pytest.raises(InputError, match="does not describe a network"):
            network_of(less, path)
    for less in without_each(metadata, RULES.from_mapping({"rule": metadata.method}).to_json()):
        with pytest.raises(InputError, match="not those of aggregate"):
            check_params(path, less)


@pytest.mark.parametrize("family", GENERATORS.words)
def test_a_generator_that_leaves_out_a_parameter_is_refused(family, tmp_path):
    training = GENERATORS.from_mapping({"family": family})
    shape = ImageShape(channels=1, height=8, width=8, num_classes=2)
    about = Metadata(
        kind="generator", stage="train-generator", method=family, custody="private", client="00", versions={},
        params=generator_params(training, shape, ["a", "b"]),
    )  # fmt: skip
    assert described(about, tmp_path)[0] == training
    for less in without_each(about, training.to_json()):
        with pytest.raises(InputError, match="does not describe a generator"):
            described(less, tmp_path)


def test_synthetic_images_that_leave_out_how_they_were_drawn_are_refused(tmp_path):
    params = {**dict.fromkeys(DATASET_PARAMS, 1), "labels": "uniform", "sampler": "ddim", "sampling_steps": 50}
    about = Metadata(
        kind="dataset", stage="synthesize", method="ddpm", custody="outbound", client="00", versions={},
        params=params, disclosures=("class_set", "derived_images"),
    )  # fmt: skip
    check_params(tmp_path, about)
    at_once = {**dict.fromkeys(DATASET_PARAMS, 1), "labels": "uniform"}
    check_params(tmp_path, dataclasses.replace(about, method="vae", params=at_once))
    for less in without_each(about, ["labels", "sampler", "sampling_steps"]):
        with pytest.raises(InputError, match="not those of synthesize"):
            check_params(tmp_path, less)


@pytest.mark.parametrize("rule", [word for word in RULES.words if RULES.chosen({"rule": word}).reads == "update"])
def test_a_model_states_how_it_was_aggregated(fedsynth_json, finished_run, tmp_path, rounds, rule):
    """Beside the parameters of its network."""
    member = RULES.chosen({"rule": rule})
    update = train(fedsynth_json, finished_run, rounds, "fedavg")
    model, message = finished_run / "public/model-0000.safetensors", update.parents[1] / "outbox/steps.safetensors"
    if not message.exists():
        fedsynth_json("encode", model, update, "--tell-steps", "-o", message)
    given = values_of(member, {"rule": rule})
    server = tmp_path / "server"
    fedsynth_json("keygen", "-o", server / "private/server.key")
    state = ["--state-out", server / "private/state.safetensors"] if "state_out" in member.takes else []
    out = server / "private/model.safetensors"
    fedsynth_json("aggregate", model, message, *flags(given), *state, "-o", out)
    network = tensors_file.read(model).metadata.params
    assert stated(out, RULES, given) == network.keys() - member.names()
