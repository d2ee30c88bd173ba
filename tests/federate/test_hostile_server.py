"""A server that wants more than was agreed: what it tries, and what it gets."""

import dataclasses
import shutil

from artifacts.formats import tensors_file
from stages.federate.client import answer, log_of
from stages.federate.parcels import pack

CLIENTS = ("00", "01", "02")
MODEL = "public/model-0000.safetensors"


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


class TestAServerThatWantsMore:
    def test_a_client_is_not_asked_in_a_round_for_which_it_was_not_drawn(self, federation, homes):
        """Who takes part follows from the terms: more rounds than these would cost more than was agreed."""
        terms, split = federation(settings=("participation=0.4",), least_clients=1)
        task = homes.asked_until(lambda task: True, terms, split)
        other = next(client for client in CLIENTS if client != task.client)
        targets = tuple(name.replace(f"/{task.client}/", f"/{other}/") for name in task.targets)
        asked = dataclasses.replace(task, client=other, targets=targets)
        assert refused(asked, split[other], other) == "target"
        assert not list((split[other] / f"clients/{other}/private").glob("update-*"))
        assert answer(task, split[task.client], task.client).status == "done"

    def test_a_network_that_is_not_that_of_the_terms(self, federation, homes, tmp_path):
        from stages.init_model import init_model
        from stages.registry import NETWORKS

        terms, split = federation(rounds=1)
        task = homes.first_task(terms, split)
        like = split["server"] / "public/test.parquet"
        init_model(
            like, tmp_path / "forged" / MODEL, params=NETWORKS.from_mapping({"arch": "mlp", "width": 500}), seed=1
        )
        (forged,) = pack(tmp_path / "forged", [MODEL])
        assert refused(with_file(task, forged), split["00"]) == "parcel"
        assert not list((split["00"] / "clients/00/private").glob("update-*"))
        assert "mlp" in log_of(split["00"], "00").read_text()

    def test_a_model_of_another_round_under_the_name_of_this_one(self, federation, homes, tmp_path):
        terms, split = federation(rounds=1)
        task = homes.first_task(terms, split)
        forged = homes.rewritten(split["server"], MODEL, tmp_path / "forged", round=5)
        for label in (0, 5):
            assert refused(with_file(task, dataclasses.replace(forged, round=label)), split["00"]) == "parcel"
        assert not (split["00"] / MODEL).exists()

    def test_a_round_that_fails_and_is_asked_for_again_costs_once(self, federation, homes, tmp_path, monkeypatch):
        """The same noise, the same charge: nobody gains by making a client stumble."""
        terms, split = federation("dp-sgd", 1, ("train-client.batch_size=8",))
        task = homes.first_task(terms, split)
        undisturbed = shutil.copytree(split["00"], tmp_path / "undisturbed")
        write = tensors_file.write

        def stumble(path, *given, **more):
            if path.name == "update-0001.safetensors":
                raise homes.Killed
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
        terms, split = federation(
            "tofu", settings=("encode.images=1", "encode.iterations=1", "encode.least_cosine=0", *phases)
        )
        task = homes.first_task(terms, split)
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
        from stages.secagg.terms import SecaggTerms

        terms, split = federation("fedavg-secure", 1)
        wanted = lambda task: task.client == "00" and "shares" in task.targets[0]  # noqa: E731
        task = homes.asked_until(wanted, terms, split)
        more = {"terms": SecaggTerms(range=4.0, bits=24)}
        few = self.list_of(split, tmp_path / "few", self.keys(("00", "01")), "secagg-keys-0001.safetensors", **more)
        assert refused(with_file(task, few), split["00"]) == "parcel"
        assert "fewer" in log_of(split["00"], "00").read_text()

    def test_a_lower_threshold_than_agreed(self, federation, homes, tmp_path):
        from stages.secagg.terms import SecaggTerms

        terms, split = federation("fedavg-secure", 1, ("secagg.threshold=3",))
        wanted = lambda task: task.client == "00" and "shares" in task.targets[0]  # noqa: E731
        task = homes.asked_until(wanted, terms, split)
        more = {"terms": SecaggTerms(range=4.0, bits=24, threshold=2)}
        low = self.list_of(split, tmp_path / "low", self.keys(CLIENTS), "secagg-keys-0001.safetensors", **more)
        assert refused(with_file(task, low), split["00"]) == "parcel"
        assert "threshold" in log_of(split["00"], "00").read_text()

    def test_a_survivor_list_shorter_than_agreed(self, federation, homes, tmp_path):
        terms, split = federation("fedavg-secure", 1)
        wanted = lambda task: task.client == "00" and "survivors" in task.targets[0]  # noqa: E731
        task = homes.asked_until(wanted, terms, split)
        masked = [f"clients/{client}/outbox/secagg-masked-0001.safetensors" for client in ("00", "01")]
        more = {"keys": split["server"] / "server/outbox/secagg-keys-0001.safetensors"}
        short = self.list_of(split, tmp_path / "short", masked, "secagg-survivors-0001.safetensors", **more)
        assert refused(with_file(task, short), split["00"]) == "parcel"
        assert "fewer" in log_of(split["00"], "00").read_text()
