"""A recipe as a list of steps: commands with their input and output files. `run`, Make, DVC and the shell all read it.

The dependencies are the files: a step can run when its inputs exist, and is done when its outputs do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from artifacts.errors import UsageError
from stages.methods.params.local_training import KEEPS_STATE, SENDS_STATE, LocalTraining
from stages.partition import numbered_clients
from stages.randomness import numpy_stream
from stages.recipes.recipe import Recipe

TEST = "public/test.parquet"
PARTITION_RECORD = "simulation/partition.json"
CURVE, CURVE_PICTURE = "metrics/curve.csv", "metrics/curve.png"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One command. Paths are relative to the run folder; `options` holds what the command line says beyond them.

    `out_folder` is what follows `-o` where a command writes a folder of files; `out` is then one of them.
    """

    command: str
    owner: str
    round: int
    out: str
    out_folder: str | None = None
    inputs: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    also_writes: tuple[str, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.out, *self.also_writes)


def model_file(round: int) -> str:
    return f"server/outbox/model-{round:04}.safetensors" if round else "public/model-0000.safetensors"


def message_file(client: str, round: int) -> str:
    return f"clients/{client}/outbox/message-{round:04}.safetensors"


def metrics_file(round: int) -> str:
    return f"metrics/round-{round:04}.json"


def planned_clients(recipe: Recipe) -> list[str]:
    """The clients' names as `partition` will give them, without running it."""
    count = recipe.section("partition").get("clients")
    if not isinstance(count, int):
        raise UsageError(f"recipe {recipe.name}: state partition.clients to lay the pipeline out in advance.")
    return numbered_clients(count)


def data_file(client: str) -> str:
    return f"clients/{client}/private/data.parquet"


def partition_step(recipe: Recipe, seed: int, clients: Sequence[str] = ()) -> Step:
    """The first step. Where the clients are known in advance, it says all the files that it will make."""
    params = recipe.section("partition")
    if "source" not in params:
        raise UsageError(f"recipe {recipe.name}: partition.source is missing.")
    options: dict[str, Any] = {key: params.pop(key) for key in ("root", "download") if key in params}
    source = str(params.pop("source"))
    return Step(
        command="partition",
        owner="simulation",
        round=0,
        inputs=(source,),
        out=PARTITION_RECORD,
        out_folder=".",
        also_writes=(TEST, *(data_file(client) for client in clients)) if clients else (),
        params=params,
        options={"seed": seed, **options},
    )


def plan(recipe: Recipe, clients: Sequence[str], seed: int) -> list[Step]:
    """All steps after `partition`, in an order in which they can be typed."""
    steps = [
        Step(
            command="init-model",
            owner="server",
            round=0,
            needs=(TEST,),
            out=model_file(0),
            params=recipe.section("init-model"),
            options={"like": TEST, "seed": seed},
        )
    ]
    steps.append(_evaluate(recipe, 0))
    steps += _synthetic_steps(recipe, clients, seed)
    synthetic = {client: _synthetic_file(recipe, clients, client) for client in clients}
    last_round: dict[str, int] = {}
    for round in range(1, recipe.rounds + 1):
        chosen = participants(clients, recipe.participation, round, seed)
        for client in chosen:
            steps += _client_steps(recipe, client, round, last_round.get(client), synthetic[client], seed)
            last_round[client] = round
        steps += _server_steps(recipe, chosen, round, len(clients))
        steps.append(_evaluate(recipe, round))
    return steps


def participants(clients: Sequence[str], participation: float, round: int, seed: int) -> list[str]:
    """The clients of a round: a uniform draw without replacement from the server's stream, at least one."""
    count = max(1, round_half_up(participation * len(clients)))
    if count == len(clients):
        return list(clients)
    drawn = numpy_stream(seed, stage="run", round=round, of="participants").choice(len(clients), count, replace=False)
    return [clients[index] for index in sorted(drawn)]


def round_half_up(value: float) -> int:
    return int(value + 0.5)


def _synthetic_file(recipe: Recipe, clients: Sequence[str], client: str) -> str | None:
    """The synthetic data that a client trains on beside its own. Parts are numbered, whatever clients are called."""
    if recipe.synthetic == "none":
        return None
    if recipe.synthetic == "own":
        return f"clients/{client}/private/synthetic.parquet"
    return f"server/outbox/synthetic-{numbered_clients(len(clients))[clients.index(client)]}.parquet"


def _synthetic_steps(recipe: Recipe, clients: Sequence[str], seed: int) -> list[Step]:
    """Fedssyn, Algorithm I: every client trains a generator and synthesises once; the server shuffles."""
    if recipe.synthetic == "none":
        return []
    folder = "outbox" if recipe.synthetic == "shuffled" else "private"
    steps = []
    for client in clients:
        private = f"clients/{client}/private"
        steps += [
            Step(
                command="train-generator",
                owner=client,
                round=0,
                inputs=(data_file(client),),
                out=f"{private}/generator.safetensors",
                params=recipe.section("train-generator"),
                options={"seed": seed},
            ),
            Step(
                command="synthesize",
                owner=client,
                round=0,
                inputs=(f"{private}/generator.safetensors",),
                out=f"clients/{client}/{folder}/synthetic.parquet",
                also_writes=(f"{private}/synthetic.png",),
                params=recipe.section("synthesize"),
                options={"sheet": f"{private}/synthetic.png", "seed": seed},
            ),
        ]
    if recipe.synthetic == "shuffled":
        parts = [f"server/outbox/synthetic-{number}.parquet" for number in numbered_clients(len(clients))]
        steps.append(
            Step(
                command="shuffle",
                owner="server",
                round=0,
                inputs=tuple(f"clients/{client}/outbox/synthetic.parquet" for client in clients),
                out=parts[0],
                out_folder="server/outbox",
                also_writes=tuple(parts[1:]),
                options={"parts": len(clients), "seed": seed},
            )
        )
    return steps


def algorithm_of(recipe: Recipe) -> str:
    return str(recipe.section("train-client").get("algorithm", LocalTraining.algorithm))


def kept_state(client: str, round: int) -> str:
    return f"clients/{client}/private/state-{round:04}.safetensors"


def sent_state(client: str, round: int) -> str:
    return f"clients/{client}/outbox/state-{round:04}.safetensors"


def server_state(recipe: Recipe, round: int) -> str:
    """Control variates go down to the clients; FedDyn's h stays with the server."""
    folder = "outbox" if algorithm_of(recipe) in SENDS_STATE else "private"
    return f"server/{folder}/state-{round:04}.safetensors"


def _client_steps(
    recipe: Recipe, client: str, round: int, last: int | None, synthetic: str | None, seed: int
) -> list[Step]:
    """What a client does in a round; `last` is the round in which it took part before."""
    algorithm = algorithm_of(recipe)
    keeps, sends = algorithm in KEEPS_STATE, algorithm in SENDS_STATE
    update = f"clients/{client}/private/update-{round:04}.safetensors"
    model = model_file(round - 1)
    states = {}
    if keeps and last is not None:
        states["state"] = kept_state(client, last)
    if sends and round > 1:
        states["server_state"] = server_state(recipe, round - 1)
    new_state = {"state_out": kept_state(client, round)} if keeps else {}
    encoding = recipe.section("encode")
    if algorithm == "fednova":
        encoding["tell_steps"] = True
    steps = [
        Step(
            command="train-client",
            owner=client,
            round=round,
            inputs=(model, data_file(client), *((synthetic,) if synthetic else ())),
            needs=tuple(states.values()),
            out=update,
            also_writes=tuple(new_state.values()),
            params=recipe.section("train-client"),
            options={"seed": seed, **states, **new_state},
        ),
        Step(
            command="encode",
            owner=client,
            round=round,
            inputs=(model, update),
            out=message_file(client, round),
            params=encoding,
        ),
    ]
    if sends:
        before = {"previous": states["state"]} if "state" in states else {}
        steps.append(
            Step(
                command="encode",
                owner=client,
                round=round,
                inputs=(model, kept_state(client, round)),
                # After the message, not beside it: the order of a ledger's entries must not depend on chance.
                needs=(message_file(client, round), *before.values()),
                out=sent_state(client, round),
                params={"method": "state"},
                options=before,
            )
        )
    return steps


def _server_steps(recipe: Recipe, chosen: Sequence[str], round: int, num_clients: int) -> list[Step]:
    """The next model and, where the algorithm has one, the server's next state."""
    algorithm = algorithm_of(recipe)
    params = recipe.section("aggregate")
    model = model_file(round - 1)
    before = {"state": server_state(recipe, round - 1)} if round > 1 else {}
    options: dict[str, str] = {}
    if algorithm == "fednova":
        params |= {"rule": "fednova", "momentum": recipe.section("train-client").get("momentum", 0.0)}
    if algorithm == "feddyn":
        alpha = recipe.section("train-client").get("alpha")
        params |= {"rule": "feddyn", "clients": num_clients} | ({"alpha": alpha} if alpha is not None else {})
        options = {**before, "state_out": server_state(recipe, round)}
    steps = [
        Step(
            command="aggregate",
            owner="server",
            round=round,
            inputs=(model, *(message_file(client, round) for client in chosen)),
            needs=tuple(path for key, path in options.items() if key == "state"),
            out=model_file(round),
            also_writes=tuple(path for key, path in options.items() if key == "state_out"),
            params=params,
            options=options,
        )
    ]
    if algorithm in SENDS_STATE:
        steps.append(
            Step(
                command="aggregate",
                owner="server",
                round=round,
                inputs=(model, *(sent_state(client, round) for client in chosen)),
                needs=(model_file(round), *before.values()),  # one after the other, as above
                out=server_state(recipe, round),
                params={"clients": num_clients},
                options={"as": "state", **before},
            )
        )
    return steps


def _evaluate(recipe: Recipe, round: int) -> Step:
    """The last evaluation draws the curve, so it waits for all the others."""
    last = round == recipe.rounds
    return Step(
        command="evaluate",
        owner="server",
        round=round,
        inputs=(model_file(round), TEST),
        needs=tuple(metrics_file(earlier) for earlier in range(round)) if last else (),
        out=metrics_file(round),
        also_writes=(CURVE_PICTURE, "metrics/confusion.png") if last else (),
        params=recipe.section("evaluate"),
        options={"curve": CURVE} | ({"picture": CURVE_PICTURE, "confusion": "metrics/confusion.png"} if last else {}),
    )
