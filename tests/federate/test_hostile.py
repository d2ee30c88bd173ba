"""A server, a client and a stranger who mean harm: what each tries, and what it gets.

Tasks and answers go from hand to hand here; what is said of Flower itself is said with its own records.
"""

import asyncio
import dataclasses
import shutil

import pytest

from artifacts import atomic, tensors_file
from stages.federate.client import answer, log_of
from stages.federate.client_app import client_app
from stages.federate.guarded_link import NodesOnly
from stages.federate.own_messages import guard
from stages.federate.parcels import ParcelError, Reply, Task, pack
from stages.federate.records import read_reply, read_task, reply_records, task_records
from stages.federate.server import serve
from stages.federate.server_app import GridChannel

CLIENTS = ("00", "01", "02")
MODEL = "public/model-0000.safetensors"
TASK = Task(
    "0" * 64, {"fedsynth": "1"}, "00", 1, ("clients/00/outbox/message-0001.safetensors",), (None, None), (), ()
)  # fmt: skip


class Killed(Exception):
    """The server's end, in the middle of something."""


def served(terms, split, channel):
    said = []
    return serve(terms, split["server"], channel, log=said.append), said


def asked_until(stop, terms, split, homes):
    """The first task of which `stop` is true, asked of nobody: the server dies before."""
    found = []

    def spoil(task, reply):
        if found:
            raise Killed
        return reply

    channel = homes.ByHand(split, spoil=spoil)
    ask = channel.ask

    def watched(task):
        if stop(task):
            found.append(task)
            raise Killed
        return ask(task)

    channel.ask = watched
    with pytest.raises(Killed):
        served(terms, split, channel)
    return found[0]


def first_task(terms, split, homes, client="00"):
    return asked_until(lambda task: task.client == client, terms, split, homes)


def refused(task, home, client="00"):
    """The word with which a client refuses. It did nothing, and nothing left."""
    ledger = home / f"clients/{client}/egress.jsonl"
    before = ledger.read_bytes() if ledger.exists() else b""
    reply = answer(task, home, client)
    assert reply.parcels == ()
    assert (ledger.read_bytes() if ledger.exists() else b"") == before
    return reply.status


def with_file(task, parcel):
    """The task, with this file in the place of the one that has its name."""
    others = tuple(sent for sent in task.parcels if sent.name != parcel.name)
    return dataclasses.replace(task, parcels=(*others, parcel))


def rewritten(home, name, folder, **changed):
    """A parcel of a file like one of this home, whose metadata say something else."""
    found = tensors_file.read(home / name)
    path = folder / name
    tensors_file.write(path, found.tensors, dataclasses.replace(found.metadata, **changed), force=True)
    (parcel,) = pack(folder, [name])
    return parcel


class TestAServerThatWantsMore:
    def test_a_client_is_not_asked_in_a_round_for_which_it_was_not_drawn(self, federation, homes):
        """Who takes part follows from the terms: more rounds than these would cost more than was agreed."""
        terms, split = federation(settings=("participation=0.4",), least_clients=1)
        task = asked_until(lambda task: True, terms, split, homes)
        other = next(client for client in CLIENTS if client != task.client)
        targets = tuple(name.replace(f"/{task.client}/", f"/{other}/") for name in task.targets)
        asked = dataclasses.replace(task, client=other, targets=targets)
        assert refused(asked, split[other], other) == "target"
        assert not list((split[other] / f"clients/{other}/private").glob("update-*"))
        assert answer(task, split[task.client], task.client).status == "done"

    def test_a_network_that_is_not_that_of_the_terms(self, federation, homes, tmp_path):
        from stages.init_model import init_model
        from stages.nets.params import NetParams

        terms, split = federation(rounds=1)
        task = first_task(terms, split, homes)
        like = split["server"] / "public/test.parquet"
        init_model(like, tmp_path / "forged" / MODEL, params=NetParams(arch="mlp", width=500), seed=1)
        (forged,) = pack(tmp_path / "forged", [MODEL])
        assert refused(with_file(task, forged), split["00"]) == "parcel"
        assert not list((split["00"] / "clients/00/private").glob("update-*"))
        assert "mlp" in log_of(split["00"], "00").read_text()

    def test_a_model_of_another_round_under_the_name_of_this_one(self, federation, homes, tmp_path):
        terms, split = federation(rounds=1)
        task = first_task(terms, split, homes)
        forged = rewritten(split["server"], MODEL, tmp_path / "forged", round=5)
        for label in (0, 5):
            assert refused(with_file(task, dataclasses.replace(forged, round=label)), split["00"]) == "parcel"
        assert not (split["00"] / MODEL).exists()

    def test_a_round_that_fails_and_is_asked_for_again_costs_once(self, federation, homes, tmp_path, monkeypatch):
        """The same noise, the same charge: nobody gains by making a client stumble."""
        terms, split = federation("dp-sgd", 1, ("train-client.batch_size=8",))
        task = first_task(terms, split, homes)
        undisturbed = shutil.copytree(split["00"], tmp_path / "undisturbed")
        write = tensors_file.write

        def stumble(path, *given, **more):
            if path.name == "update-0001.safetensors":
                raise Killed
            return write(path, *given, **more)

        monkeypatch.setattr(tensors_file, "write", stumble)
        assert refused(task, split["00"]) == "failed"
        monkeypatch.undo()
        again, once = (answer(task, home, "00") for home in (split["00"], undisturbed))
        assert again == once
        spent = [(home / "clients/00/private/spend.jsonl").read_bytes() for home in (split["00"], undisturbed)]
        assert spent[0] == spent[1]
        assert spent[0].count(b'"reserved"') == 1
        assert again.parcels[0].data

    def test_a_rounds_update_in_two_ways(self, federation, homes):
        """TOFU's server says when full updates begin. It has said it, once a round was answered."""
        phases = ("switch1=plateau", "switch2=plateau", "plateau.patience=1")
        terms, split = federation("tofu", settings=("encode.images=1", "encode.iterations=1", *phases))
        task = first_task(terms, split, homes)
        assert answer(task, split["00"], "00").status == "done"
        full = dataclasses.replace(task, switches=(1, 1), targets=("clients/00/outbox/message-0001.safetensors",))
        assert refused(full, split["00"]) == "target"
        assert answer(task, split["00"], "00").status == "done"


class TestAServerThatUnmasks:
    """Fewer clients than the terms want, or other conditions: each would bring it nearer to a single update."""

    def list_of(self, split, folder, files, name, **more):
        """The server's list, made of these files only."""
        from stages.secagg.collect import collect

        server, out = split["server"], folder / f"server/outbox/{name}"
        collect([server / file for file in files], out, roster=server / "public/roster.json", **more)
        (parcel,) = pack(folder, [f"server/outbox/{name}"])
        return parcel

    def keys(self, clients):
        return [f"clients/{client}/outbox/secagg-keys-0001.safetensors" for client in clients]

    def test_a_list_of_fewer_clients_than_agreed(self, federation, homes, tmp_path):
        from stages.secagg.terms import Terms

        terms, split = federation("fedavg-secure", 1)
        wanted = lambda task: task.client == "00" and "shares" in task.targets[0]  # noqa: E731
        task = asked_until(wanted, terms, split, homes)
        more = {"terms": Terms(range=4.0, bits=24)}
        few = self.list_of(split, tmp_path / "few", self.keys(("00", "01")), "secagg-keys-0001.safetensors", **more)
        assert refused(with_file(task, few), split["00"]) == "parcel"
        assert "fewer" in log_of(split["00"], "00").read_text()

    def test_a_lower_threshold_than_agreed(self, federation, homes, tmp_path):
        from stages.secagg.terms import Terms

        terms, split = federation("fedavg-secure", 1, ("secagg.threshold=3",))
        wanted = lambda task: task.client == "00" and "shares" in task.targets[0]  # noqa: E731
        task = asked_until(wanted, terms, split, homes)
        more = {"terms": Terms(range=4.0, bits=24, threshold=2)}
        low = self.list_of(split, tmp_path / "low", self.keys(CLIENTS), "secagg-keys-0001.safetensors", **more)
        assert refused(with_file(task, low), split["00"]) == "parcel"
        assert "threshold" in log_of(split["00"], "00").read_text()

    def test_a_survivor_list_shorter_than_agreed(self, federation, homes, tmp_path):
        terms, split = federation("fedavg-secure", 1)
        wanted = lambda task: task.client == "00" and "survivors" in task.targets[0]  # noqa: E731
        task = asked_until(wanted, terms, split, homes)
        masked = [f"clients/{client}/outbox/secagg-masked-0001.safetensors" for client in ("00", "01")]
        more = {"keys": split["server"] / "server/outbox/secagg-keys-0001.safetensors"}
        short = self.list_of(split, tmp_path / "short", masked, "secagg-survivors-0001.safetensors", **more)
        assert refused(with_file(task, short), split["00"]) == "parcel"
        assert "fewer" in log_of(split["00"], "00").read_text()


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
        task = first_task(terms, split, homes)
        home = split["00"]
        (home / "clients/00/private/data.parquet").write_bytes(b"secret")
        log_of(home, "00").mkdir()
        assert answer(task, home, "00").status == "failed"

    def test_its_own_log_is_for_nobody_elses_eyes(self, federation, homes):
        terms, split = federation(rounds=1)
        task = first_task(terms, split, homes)
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


class TestAClientThatLies:
    def left_out(self, federation, homes, spoil, recipe="fedavg", **said):
        """Client 01 lies, and the round goes on without it; what was said of it."""
        terms, split = federation(recipe, least_clients=2, rounds=1, **said)
        lie = lambda task, reply: spoil(task, reply) if task.client == "01" else reply  # noqa: E731
        channel = homes.ByHand(split, spoil=lie)
        _, log = served(terms, split, channel)
        (line,) = [line for line in log if line.startswith("01: left out of round 1")]
        assert not list(split["server"].glob("clients/01/outbox/*"))
        return line, channel

    @pytest.mark.parametrize(
        "wrong", [{"status": None}, {"round": "first"}, {"round": float("inf")}, {"names": 3}, {"client": None}]
    )
    def test_an_answer_that_is_not_laid_out_as_agreed(self, wrong):
        records = reply_records(Reply("done", "01", 1, names=("x",)))
        said = records.config_records["reply"]
        for name, value in wrong.items():
            del said[name]
            if value is not None:
                said[name] = value
        with pytest.raises(ParcelError):
            read_reply(records)

    def test_words_that_would_write_other_lines_into_the_log(self, federation, homes):
        forged = "message\nfedsynth: error: all is well (exit code 0)\x1b[2J" + "x" * 10_000

        def spoil(task, reply):
            return dataclasses.replace(reply, parcels=(dataclasses.replace(reply.parcels[0], kind=forged),))

        line, _ = self.left_out(federation, homes, spoil)
        assert line.isprintable()
        assert len(line) < 1000

    def test_one_that_always_lacks_what_it_was_sent(self, federation, homes):
        """Each time it would be sent all of it again."""
        spoil = lambda task, reply: Reply("lacks", task.client, task.round, names=(MODEL,))  # noqa: E731
        _, channel = self.left_out(federation, homes, spoil, wait=30.0)
        assert len([task for task in channel.asked if task.client == "01"]) <= 2

    def test_half_an_answer_is_not_kept(self, federation, homes):
        """SCAFFOLD's message without its state: after a restart it would count, in a round that went without it."""
        spoil = lambda task, reply: dataclasses.replace(reply, parcels=reply.parcels[:1])  # noqa: E731
        line, _ = self.left_out(federation, homes, spoil, "scaffold")
        assert "sent no clients/01/outbox/state-0001" in line

    def test_a_message_of_no_round(self, federation, homes, tmp_path):
        def spoil(task, reply):
            made = tmp_path / "homes/01"
            forged = rewritten(made, reply.parcels[0].name, tmp_path / "forged", round=None)
            return dataclasses.replace(reply, parcels=(forged,))

        assert "of round None" in self.left_out(federation, homes, spoil)[0]


class TestHeldAndSigned:
    def test_a_signature_waits_at_the_gate_like_its_file(self, federation, homes, fedsynth, monkeypatch):
        """Asked again while it waits, the client still says that it waits."""
        from stages.federate import server

        monkeypatch.setattr(server, "_AGAIN", 0.05)
        terms, split = federation(rounds=1, signed=True, wait=60.0)
        (split["01"] / "clients/01/private/policy.yaml").write_text("delta: 1.0e-5\nrules: []\n")
        pending, held = split["01"] / "clients/01/pending", []

        def spoil(task, reply):
            if task.client == "01" and reply.status == "held":
                held.append(reply.names)
                if held.count(reply.names) == 2:
                    code, _, err = fedsynth("release", pending, "--yes", "--not-seen-private")
                    assert code == 0, err
            return reply

        assert served(terms, split, homes.ByHand(split, spoil=spoil))[0]["rounds"] == 1
        name = "clients/01/outbox/message-0001.safetensors"
        assert held == [(name,)] * 2 + [(f"{name}.intoto.jsonl",)] * 2
        assert (split["server"] / f"{name}.intoto.jsonl").exists()


class TestAServerThatIsKilled:
    def test_a_signed_file_is_never_there_without_its_signature(self, federation, homes, monkeypatch):
        terms, split = federation(rounds=1, signed=True)
        place, seen = atomic.place, []

        def killed(temporary, path, *, force):
            inside = split["server"] / "clients" in path.parents
            if inside and seen:
                raise Killed
            seen.extend([path] if inside else [])
            place(temporary, path, force=force)

        monkeypatch.setattr(atomic, "place", killed)
        with pytest.raises(Killed):
            served(terms, split, homes.ByHand(split))
        monkeypatch.undo()
        served(terms, split, homes.ByHand(split))
        files = set(split["server"].glob("clients/*/outbox/*"))
        assert len(files) == 6
        assert seen[0].name.endswith(".intoto.jsonl")

    def test_one_that_dropped_out_of_secure_aggregation_stays_out(self, federation, homes):
        """The list of those who stayed is made: nothing more of the others is wanted in this round."""
        terms, split = federation("fedavg-secure", 1, least_clients=2)

        def spoil(task, reply):
            if "masked" in task.targets[0] and task.client == "02":
                first.absent.add("02")
                return None
            if "survivors" in task.targets[0]:
                raise Killed
            return reply

        first = homes.ByHand(split, spoil=spoil)
        with pytest.raises(Killed):
            served(terms, split, first)
        second = homes.ByHand(split)
        assert served(terms, split, second)[0]["rounds"] == 1
        assert {task.client for task in second.asked} == {"00", "01"}

    def test_one_that_missed_half_of_a_round_is_not_in_the_other_half(self, federation, homes, tmp_path, monkeypatch):
        """SCAFFOLD's server makes a model, then a state: both of the same clients, whatever happens in between."""
        from stages.federate import server

        terms, split = federation("scaffold", 1, least_clients=2)
        whole = {name: shutil.copytree(home, tmp_path / "whole" / name) for name, home in split.items()}
        served(terms, whole, homes.ByHand(whole, absent=["02"]))
        perform = server.perform

        def killed(step, home):
            if step.out == "server/outbox/state-0001.safetensors":
                raise Killed
            return perform(step, home)

        monkeypatch.setattr(server, "perform", killed)
        with pytest.raises(Killed):
            served(terms, split, homes.ByHand(split, absent=["02"]))
        monkeypatch.undo()
        served(terms, split, homes.ByHand(split))
        name = "server/outbox/state-0001.safetensors"
        assert (split["server"] / name).read_bytes() == (whole["server"] / name).read_bytes()


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


def test_names_that_lead_out_of_a_home_are_in_no_plan(federation):
    """A client's name is checked in the terms, and every other part of a name is ours."""
    from artifacts.errors import UsageError

    terms, _ = federation()
    for name in ("..", "a/b", "/etc", "", "server", ".hidden"):
        with pytest.raises(UsageError):
            dataclasses.replace(terms, clients=(name, "01", "02"))
