"""Between the SuperLink and a node: it gets what was sent to it, and answers in its own name.

Flower gives a node whatever it can name by a digest: a client could ask for what another was sent, and see by it who
takes part in a round (privacy contract, rule 4). And it looks at a node's key, but then believes what the answer says
of where it comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

Handler = Callable[..., Any]
_MOST_NODES = 1000  # whose digests are kept at hand


def guard(handlers: Any) -> None:
    """Put it around the SuperLink's handlers of nodes' requests, a module of Flower's."""
    own = OwnMessages(handlers.pull_object, handlers.push_messages, handlers.confirm_message_received)
    handlers.pull_object, handlers.push_messages = own.pull_object, own.push_messages
    handlers.confirm_message_received = own.confirm_message_received


class OwnMessages:
    def __init__(self, pull_object: Handler, push_messages: Handler, confirm_message_received: Handler) -> None:
        self._pull_object, self._push_messages, self._confirm = pull_object, push_messages, confirm_message_received
        self._sent: dict[int, set[str]] = {}

    def pull_object(self, request: Any, state: Any) -> Any:
        """A part of a message to this node; of any other it is said that there is none."""
        from flwr.proto.message_pb2 import PullObjectResponse

        node = request.node.node_id
        if request.object_id not in self._sent.get(node, ()):
            if len(self._sent) >= _MOST_NODES:
                self._sent.clear()
            self._sent[node] = set(_sent_to(node, state))
        if request.object_id not in self._sent.get(node, ()):
            return PullObjectResponse(object_found=False, object_available=False)
        return self._pull_object(request=request, state=state)

    def push_messages(self, request: Any, state: Any) -> Any:
        """An answer by the node that it says it is by."""
        from flwr.supercore.error import ApiErrorCode, FlowerError

        if any(message.metadata.src_node_id != request.node.node_id for message in request.messages_list):
            raise FlowerError(
                ApiErrorCode.FLEET_RUN_STATUS_NOT_ALLOWED, f"node {request.node.node_id} answered for another one"
            )
        return self._push_messages(request=request, state=state)

    def confirm_message_received(self, request: Any, state: Any, store: Any) -> Any:
        """What a node has is no longer sent to it: whether others still wait for the same file is not its business."""
        answer = self._confirm(request=request, state=state, store=store)
        self._sent.pop(request.node.node_id, None)
        return answer


def _sent_to(node: int, state: Any) -> Iterator[str]:
    """The digests of all parts of all messages to a node that the SuperLink still has."""
    from flwr.supercore.object_store import NoObjectInStoreError
    from flwr.supercore.state.schema.linkstate_models import MessageIns
    from flwr.supercore.utils import uint64_to_int64
    from sqlalchemy import select

    to_it = MessageIns.dst_node_id == uint64_to_int64(node)
    with state.session() as session:
        messages = list(session.scalars(select(MessageIns.message_id).where(to_it)))
    for message in messages:
        with suppress(NoObjectInStoreError):
            yield from _parts(state.object_store.get_object_tree(message))


def _parts(tree: Any) -> Iterator[str]:
    yield tree.object_id
    for part in tree.children:
        yield from _parts(part)
