"""The processes of a federation: whom they talk to, how they start, stop and end."""

import json
import textwrap

import pytest

SERVER = """
    import json, os, sys, time
    from pathlib import Path

    from artifacts.errors import BudgetError
    from flwr.app import ConfigRecord, Message, RecordDict
    from flwr.serverapp import ServerApp

    app = ServerApp()

    @app.main()
    def main(grid, context):
        home = Path(os.environ["FEDSYNTH_HOME"])
        if (home / "fail").exists():
            raise BudgetError("the budget is spent")
        while len(nodes := list(grid.get_node_ids())) < 1:
            time.sleep(0.1)
        messages = [Message(RecordDict(), dst_node_id=node, message_type="query") for node in nodes]
        answers = [dict(reply.content["about"]) for reply in grid.send_and_receive(messages, timeout=60)]
        (home / "answers.json").write_text(json.dumps(answers))
"""

CLIENT = """
    import json, os
    from pathlib import Path

    from flwr.app import ConfigRecord, Message, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.query()
    def query(message, context):
        home = Path(context.node_config["home"])
        (home / "environment.json").write_text(json.dumps(dict(os.environ)))
        told = {"client": context.node_config["client"], "torch": "torch" in __import__("sys").modules}
        return Message(RecordDict({"about": ConfigRecord(told)}), reply_to=message)
"""


@pytest.fixture(scope="session")
def probe_app(linked, small_terms):
    """An app in place of ours that tells where its two halves run."""
    app = linked.agree(small_terms)
    (app / "fedsynth_app/server.py").write_text(textwrap.dedent(SERVER))
    (app / "fedsynth_app/client.py").write_text(textwrap.dedent(CLIENT))
    return app


def test_a_run_from_end_to_end(linked, probe_app):
    linked.start_nodes("a")
    done = linked.run(probe_app, "--json")
    assert done.returncode == 0, done.stderr
    print(done.stderr)
    assert json.loads(done.stdout)["recipe"] == "fedavg"
    assert json.loads((linked.server_home / "answers.json").read_text()) == [{"client": "a", "torch": False}]
