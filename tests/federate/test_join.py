"""`federate join`, called again after it was killed: what is missing is made, and nothing is left beside the rest."""

import os

from artifacts.metadata import Metadata
from stages.data.dataset_images import dataset_params, save_dataset
from stages.data.sources import load
from stages.federate.join import join
from stages.federate.terms import agreed
from stages.recipes.recipe import load_recipe


def test_no_copy_of_the_key_is_left_of_a_call_that_was_killed(tmp_path):
    """A kill between the name of a file and the end of its temporary one leaves both."""
    digits = load("digits").train.take(range(20))
    about = Metadata(kind="dataset", stage="ingest", custody="public", params=dataset_params(digits), versions={})
    save_dataset(tmp_path / "digits.parquet", digits, about)
    terms = tmp_path / "terms.yaml"
    terms.write_text(agreed(load_recipe("fedavg"), ("a", "b"), seed=0, wait=1.0, most_bytes=10**6).to_yaml())

    data = tmp_path / "digits.parquet"

    def joined():
        return join(terms, tmp_path / "home", client="a", data=str(data), like=data)

    summary = joined()
    private = tmp_path / "home/clients/a/private"
    key = (private / "client.key").read_bytes()
    for path in (private / "client.key", private / "data.parquet"):
        os.link(path, path.with_name(f".{path.name}.{'0' * 16}.part"))
    assert joined() == summary and (private / "client.key").read_bytes() == key
    assert sorted(path.name for path in private.iterdir()) == ["client.key", "data.parquet", "spend.jsonl"]
