"""A client behind a gate."""

import pytest

from artifacts.identity import keys
from artifacts.ledgers import egress
from stages.keygen import settle

NOTHING_LEAVES = "rules: []\n"


class Gated:
    def __init__(self, root):
        self.root = root / "clients/00"
        settle(self.root / "private/client.key", keys.generate(), force=False)
        self.rules(NOTHING_LEAVES)

    def rules(self, text):
        (self.root / "private/policy.yaml").write_text(text)

    def pending(self, name="message.safetensors"):
        return self.root / "pending" / name

    def outbox(self, name="message.safetensors"):
        return self.root / "outbox" / name

    def entries(self):
        return egress.read(self.root / "egress.jsonl").entries

    def names(self, folder):
        return sorted(p.name for p in (self.root / folder).iterdir()) if (self.root / folder).is_dir() else []


@pytest.fixture
def client(tmp_path):
    return Gated(tmp_path)


@pytest.fixture
def message(client, forge):
    """A message without noise, held."""
    forge.write_tensors(client.outbox(), kind="message", round=1)
    return client.pending()
