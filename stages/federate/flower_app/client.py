"""The ClientApp: a piece of a sealed parcel comes, the worker of this client takes it, and says what goes back.

Flower sends the text of an exception to the server, so none leaves this file.
"""

from __future__ import annotations

import contextlib
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from .wire import ask

SAID, PIECE, STYPE = "said", "piece", "sealed"
_PATIENCE = 60.0


def packed(said: dict[str, Any], data: bytes) -> RecordDict:
    records = RecordDict({SAID: ConfigRecord(said)})
    if data:
        records[PIECE] = ArrayRecord({PIECE: Array(dtype="uint8", shape=(len(data),), stype=STYPE, data=data)})
    return records


def unpacked(records: RecordDict) -> tuple[dict[str, Any], bytes]:
    data = records.array_records[PIECE][PIECE].data if PIECE in records.array_records else b""
    return dict(records.config_records[SAID]), data


def _work(message: Message, context: Context) -> Message:  # noqa: ARG001
    said: dict[str, Any] = {"state": "away"}
    data = b""
    with contextlib.suppress(Exception):
        question, piece = unpacked(message.content)
        said, data = ask({**question, "do": "deliver"}, piece, patience=_PATIENCE)
    return Message(packed(said, data), reply_to=message)


app = ClientApp()
app.train()(_work)
