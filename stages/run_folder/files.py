"""Where the files of a run are, relative to its folder. One name for each, so that no two steps disagree."""

from __future__ import annotations

from artifacts import places

TEST = "public/test.parquet"
ROSTER = places.ROSTER
PARTITION_RECORD = "simulation/partition.json"
TUNED = "tuned.yaml"  # the recipe that `tune` chose
CURVE, CURVE_PICTURE, CONFUSION_PICTURE = "metrics/curve.csv", "metrics/curve.png", "metrics/confusion.png"


def numbered_clients(count: int) -> list[str]:
    """`00`, `01`, … as wide as needed, so that names sort as numbers do."""
    width = max(2, len(str(count - 1)))
    return [f"{number:0{width}}" for number in range(count)]


def model_file(round: int) -> str:
    return f"server/outbox/model-{round:04}.safetensors" if round else "public/model-0000.safetensors"


def metrics_file(round: int) -> str:
    return f"metrics/round-{round:04}.json"


def data_file(client: str) -> str:
    return f"clients/{client}/private/data.parquet"


def generator_file(client: str) -> str:
    return f"clients/{client}/private/generator.safetensors"


def contact_sheet(client: str) -> str:
    return f"clients/{client}/private/synthetic.png"


def own_synthetic(client: str, *, leaves: bool) -> str:
    """What the client's generator made: in its outbox if it leaves, else private."""
    return f"clients/{client}/{'outbox' if leaves else 'private'}/synthetic.parquet"


def shuffled_parts(count: int) -> list[str]:
    """What the server deals out. Parts are numbered, whatever clients are called."""
    return [f"server/outbox/synthetic-{number}.parquet" for number in numbered_clients(count)]


def update_file(client: str, round: int) -> str:
    return f"clients/{client}/private/update-{round:04}.safetensors"


def message_file(client: str, round: int) -> str:
    return f"clients/{client}/outbox/message-{round:04}.safetensors"


def unsent_message(client: str, round: int) -> str:
    """An update clipped or noised, that leaves under masks only."""
    return f"clients/{client}/private/message-{round:04}.safetensors"


def surrogate_file(client: str, round: int) -> str:
    return f"clients/{client}/outbox/surrogate-{round:04}.safetensors"


def matching_file(client: str, round: int) -> str:
    """What the client measured on its data while it made its synthetic set."""
    return f"clients/{client}/private/matching-{round:04}.json"


def descent_file(round: int) -> str:
    """The server's account of its descent on the clients' synthetic sets."""
    return f"server/private/descent-{round:04}.json"


def proxy_file(owner: str, round: int) -> str:
    """A client's update as proxy data, or the server's on its way down."""
    return f"{_home(owner)}/outbox/proxy-{round:04}.safetensors"


def aggregated_update(round: int) -> str:
    return f"server/private/update-{round:04}.safetensors"


def followed_model(owner: str, round: int) -> str:
    """The model that each participant makes of the server's proxy; the same bytes with all of them."""
    return f"{_home(owner)}/private/model-{round:04}.safetensors"


def identity_file(owner: str) -> str:
    """The public half of a participant's signing keys, to be carried to the others."""
    return f"{_home(owner)}/private/identity.json"


def head_file(client: str, round: int) -> str:
    """The head of a client's ledger, for the server to countersign."""
    return f"clients/{client}/outbox/head-{round:04}.intoto.jsonl"


def receipts_file(round: int) -> str:
    return f"server/outbox/receipts-{round:04}.intoto.jsonl"


def kept_receipt(client: str, round: int) -> str:
    return f"clients/{client}/private/receipt-{round:04}.intoto.jsonl"


def secagg_file(owner: str, step: str, round: int, *, reader: str | None = None) -> str:
    """What a client sends in a step of secure aggregation, or the server's list of it, or one reader's part of that."""
    addressed = "" if reader is None else f"-for-{reader}"
    return f"{_home(owner)}/outbox/secagg-{step}{addressed}-{round:04}.safetensors"


def _home(owner: str) -> str:
    return owner if owner == "server" else f"clients/{owner}"


def kept_state(client: str, round: int) -> str:
    return f"clients/{client}/private/state-{round:04}.safetensors"


def sent_state(client: str, round: int) -> str:
    return f"clients/{client}/outbox/state-{round:04}.safetensors"


def server_state(round: int, *, sent: bool) -> str:
    """What the server keeps from round to round, which some algorithms send down to the clients."""
    return f"server/{'outbox' if sent else 'private'}/state-{round:04}.safetensors"
