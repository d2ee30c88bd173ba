"""Documents by the command line, and small files to make them from."""

import json

import pytest

SAID = {
    "delta": "1e-5", "license": "https://spdx.org/licenses/CC-BY-4.0", "date": "2026-01-31", "publisher": "Hospital A",
    "url": "https://example.org/set", "project": "Lung study", "person": "A. Person",
}  # fmt: skip


@pytest.fixture(scope="session")
def said():
    """The options of a format that it needs, as words of the command line."""
    from stages.export.document import documents

    def words(name):
        needed = documents()[name].needs
        return [word for option in needed if option in SAID for word in (f"--{option}", SAID[option])]

    return words


@pytest.fixture
def export(fedsynth, said, tmp_path):
    """Call `export` with what its format needs; returns the text, or for .json the object."""

    def make(path, name, *words, out="document.json", code=0):
        target = tmp_path / "documents" / out
        found, _, err = fedsynth("export", path, "--format", name, "-o", target, "--force", *said(name), *words)
        assert found == code, err
        if target.is_dir():
            return target
        return json.loads(target.read_text()) if target.suffix == ".json" else target.read_text()

    return make


@pytest.fixture
def noised(forge, tmp_path):
    """A message with one Gaussian release of σ = 4 and nothing else."""
    from stages.privacy.events import PrivacyEvent

    event = PrivacyEvent.planned(
        unit="record", sampling_rate=1.0, noise_multiplier=4.0, clip_norm=1.0, steps=1, trust="nobody"
    )
    path = tmp_path / "clients/00/outbox/message.safetensors"
    event = event.to_json() | {"id": "a" * 64}
    return forge.write_tensors(path, kind="message", round=1, privacy=(event,), disclosures=())


@pytest.fixture
def synthetic(forge, tmp_path):
    """Synthetic images that left without noise."""
    return forge.write_dataset(
        tmp_path / "clients/00/outbox/synthetic.parquet", custody="outbound", client="00", stage="synthesize",
        method="vae", disclosures=("class_set", "derived_images"),
    )  # fmt: skip
