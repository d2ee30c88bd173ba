"""What Flower would tell to whom, and what is left of it: errors, other nodes' messages, strangers, proxies."""

import asyncio
import dataclasses

import pytest

from stages.federate.client import answer, log_of
from stages.federate.client_app import client_app
from stages.federate.guarded_link import NodesOnly
from stages.federate.own_messages import guard
from stages.federate.parcels import Reply, Task
from stages.federate.records import read_reply, read_task, reply_records, task_records
from stages.federate.server_app import GridChannel

TASK = Task(
    "0" * 64, {"fedsynth": "1"}, "00", 1, ("clients/00/outbox/message-0001.safetensors",), (None, None), (), ()
)  # fmt: skip


@pytest.fixture
def identity(monkeypatch):
    """Without one Flower makes no message; a process of its own is given one."""
    from flwr.supercore.task_identity import TaskIdentity

    def be(run):
        for name, number in (("_task_id", 1), ("_run_id", run), ("_node_id", 1)):
            monkeypatch.setattr(TaskIdentity, name, number)

    be(1)
    return be


@pytest.mark.usefixtures("identity")
class TestWhatErrorsTell:
    """Flower sends the text of an exception to the server; it could hold a path, or a value."""

    def reply_to(self, records, **config):
        from flwr.app import Context, Message, RecordDict

        context = Context(run_id=1, node_id=2, node_config=config, state=RecordDict(), run_config={})
        message = Message(records, dst_node_id=2, message_type="train")
        return read_reply(client_app()(message=message, context=context).content)

    def test_a_log_that_cannot_be_written(self, federation, homes):
        terms, split = federation(rounds=1)
        task = homes.first_task(terms, split)
        home = split["00"]
        (home / "clients/00/private/data.parquet").write_bytes(b"secret")
        log_of(home, "00").mkdir()
        assert answer(task, home, "00").status == "failed"

    def test_its_own_log_is_for_nobody_elses_eyes(self, federation, homes):
        terms, split = federation(rounds=1)
        task = homes.first_task(terms, split)
        answer(dataclasses.replace(task, terms="0" * 64), split["00"], "00")
        assert log_of(split["00"], "00").stat().st_mode & 0o077 == 0

    @pytest.mark.parametrize("lost", ["switches", "libraries", "round", "client"])
    def test_a_task_that_is_not_laid_out_as_agreed(self, tmp_path, lost):
        records = task_records(TASK)
        del records.config_records["task"][lost]
        reply = self.reply_to(records, client="00", home=str(tmp_path))
        assert (reply.status, reply.client, reply.names, reply.parcels) == ("parcel", "00", (), ())

    def test_a_node_that_was_not_told_where_its_home_is(self):
        reply = self.reply_to(task_records(TASK), client="00")
        assert (reply.status, reply.parcels) == ("failed", ())

    @pytest.mark.parametrize("client", ["00", ".."])
    def test_a_home_that_is_not_there(self, tmp_path, client):
        reply = self.reply_to(task_records(TASK), client=client, home=str(tmp_path / "nowhere"))
        assert (reply.status, reply.parcels) == ("failed", ())
        assert not list(tmp_path.glob("*.log"))


def test_nobody_can_work_out_what_another_is_asked_or_answers():
    """A SuperLink gives every node what it can name by its digest: what can be guessed would tell who was drawn."""
    reply = Reply("held", "01", 1)
    for key, write, said in (("task", task_records, TASK), ("reply", reply_records, reply)):
        found = {write(said).config_records[key].object_id for _ in range(3)}
        assert len(found) == 3
    assert read_task(task_records(TASK)) == TASK
    assert read_reply(reply_records(reply)) == reply


class TestTheSuperLinksStore:
    """Flower's own, with two nodes of which one was sent a task."""

    @pytest.fixture
    def link(self, tmp_path, identity, monkeypatch):
        from flwr.app import Message
        from flwr.server.superlink.linkstate.linkstate_factory import LinkStateFactory
        from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType
        from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
        from flwr.supercore.object_store import ObjectStoreFactory
        from flwr.superlink.federation import NoOpFederationManager
        from flwr.superlink.servicer.fleet import fleet_handlers

        for name in ("pull_object", "push_messages", "confirm_message_received"):
            monkeypatch.setattr(fleet_handlers, name, getattr(fleet_handlers, name))
        monkeypatch.setattr(fleet_handlers, "check_abort", lambda *_: None)  # as if the run had been started
        guard(fleet_handlers)
        database = str(tmp_path / "state.db")
        state = LinkStateFactory(database, NoOpFederationManager(), ObjectStoreFactory(database)).state()
        nodes = [state.create_node("o", "o", key, 60.0, name=key.decode()) for key in (b"01", b"02")]
        for node in nodes:
            state.activate_node(node, 60.0)
        run = state.create_run("a", "1", "0" * 64, {}, NOOP_FEDERATION_ID, None, "o", TaskType.SERVER_APP)
        identity(run)
        records = reply_records(Reply("held", "01", 1))
        message = Message(records, dst_node_id=nodes[0], message_type="train")
        message.metadata.__dict__["_message_id"] = message.object_id
        state.store_message_and_object_tree(message, get_object_tree(message), state.start_session(run))
        for number, part in get_all_nested_objects(message).items():
            state.object_store.put(number, part.deflate())
        return fleet_handlers, state, nodes, run, message, records.config_records["reply"].object_id

    def test_a_node_gets_what_was_sent_to_it_and_nothing_else(self, link):
        from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest
        from flwr.proto.node_pb2 import Node

        handlers, state, (own, other), run, message, part = link

        def found(node):
            request = PullObjectRequest(node=Node(node_id=node), run_id=run, object_id=part)
            return handlers.pull_object(request=request, state=state).object_found

        assert (found(own), found(other), found(own)) == (True, False, True)
        received = ConfirmMessageReceivedRequest(
            node=Node(node_id=own), run_id=run, message_object_id=message.object_id
        )
        handlers.confirm_message_received(request=received, state=state, store=state.object_store)
        assert not found(own)

    def test_a_node_answers_in_its_own_name(self, link):
        from flwr.app import Message, RecordDict
        from flwr.common.serde import message_to_proto
        from flwr.proto.fleet_pb2 import PushMessagesRequest
        from flwr.proto.node_pb2 import Node
        from flwr.supercore.error import FlowerError
        from flwr.supercore.inflatable.inflatable_object import get_object_tree

        handlers, state, (own, other), _, message, _ = link
        reply = Message(RecordDict(), reply_to=message)
        reply.metadata.__dict__["_message_id"] = reply.object_id
        assert reply.metadata.src_node_id == own

        def push(node):
            request = PushMessagesRequest(
                node=Node(node_id=node), messages_list=[message_to_proto(reply)],
                message_object_trees=[get_object_tree(reply)],
            )  # fmt: skip
            return handlers.push_messages(request=request, state=state)

        with pytest.raises(FlowerError, match="answered for another"):
            push(other)
        assert dict(push(own).results) == {reply.object_id: 0}


class TestStrangers:
    def test_a_node_without_a_name_is_nobody(self, federation):
        """It has a key that the server let in, but for whom? It may not choose."""
        from flwr.proto.node_pb2 import NodeInfo

        terms, _ = federation()
        asked = []

        class Grid:
            def get_nodes(self):
                return [NodeInfo(node_id=1, name=""), NodeInfo(node_id=2, name="01"), NodeInfo(node_id=3, name="99")]

            def push_messages(self, messages):
                asked.extend(messages)
                return ["1"]

        assert GridChannel(Grid(), terms).present() == {"01"}
        assert asked == []

    @pytest.mark.parametrize("header", [b"x-forwarded-for", b"forwarded", b"x-real-ip"])
    @pytest.mark.parametrize(("path", "status"), [("/v1/control/start-run", 403), ("/v1/fleet/pull-messages", 200)])
    def test_who_comes_through_a_proxy_is_not_near(self, header, path, status):
        """A proxy on the server's machine makes every stranger look like a process of this machine."""
        sent = []

        async def app(scope, receive, send):
            await send({"type": "http.response.start", "status": 200, "headers": []})

        async def send(event):
            sent.append(event)

        scope = {
            "type": "http", "path": path, "client": ("127.0.0.1", 5), "server": ("127.0.0.1", 9092),
            "headers": [(header, b"127.0.0.1")],
        }  # fmt: skip
        asyncio.run(NodesOnly(app)(scope, None, send))
        assert sent[0]["status"] == status
        near = []

        async def send_near(event):
            near.append(event)

        asyncio.run(NodesOnly(app)({**scope, "headers": []}, None, send_near))
        assert near[0]["status"] == 200
