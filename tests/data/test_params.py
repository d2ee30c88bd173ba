"""The parameters of `partition`: defaults under their own scheme, and nothing that the scheme would ignore."""

from __future__ import annotations

import pytest

from stages.data.params import PartitionParams


def test_defaults_are_filled_in_only_where_they_are_used() -> None:
    always = {"scheme": "iid", "test_fraction": 0.2, "mix": 0.0, "held_out": 0.0, "central": False}
    assert PartitionParams(clients=5).to_json() == {"clients": 5, **always}
    dirichlet = {"scheme": "dirichlet", "alpha": 0.5, "sizes": "drawn"}
    assert PartitionParams(clients=5, scheme="dirichlet").to_json() == {"clients": 5, **always, **dirichlet}
    assert PartitionParams(clients=5, scheme="classes").classes_per_client == 2
    assert PartitionParams(clients=5, scheme="shards").shards_per_client == 2


def test_natural_and_attributes_may_leave_the_number_of_clients_open() -> None:
    assert PartitionParams(scheme="attributes", by="shape,x:2").clients is None
    assert PartitionParams(scheme="natural", id_column="writer").clients is None
    assert PartitionParams(scheme="natural", id_column="writer", clients=3).clients == 3


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "--clients needs a value with --scheme iid"),
        ({"clients": 0}, "--clients must be at least 1, found 0"),
        ({"clients": 2, "scheme": "random"}, "--scheme must be one of iid, dirichlet"),
        ({"clients": 2, "alpha": 0.5}, "--alpha goes with --scheme dirichlet"),
        ({"clients": 2, "sizes": "equal"}, "--sizes goes with --scheme dirichlet"),
        (
            {"clients": 2, "scheme": "shards", "classes_per_client": 2},
            "--classes-per-client goes with --scheme",
        ),
        ({"clients": 2, "scheme": "classes", "shards_per_client": 2}, "--shards-per-client goes with --scheme shards"),
        ({"clients": 2, "scheme": "dirichlet", "id_column": "writer"}, "--id-column goes with --scheme natural"),
        ({"clients": 2, "scheme": "dirichlet", "alpha": 0.0}, "--alpha must be above 0, found 0.0"),
        ({"clients": 2, "scheme": "classes", "classes_per_client": 0}, "--classes-per-client must be at least 1"),
        ({"clients": 2, "scheme": "shards", "shards_per_client": 0}, "--shards-per-client must be at least 1"),
        ({"scheme": "natural"}, "--id-column needs a value"),
        ({"scheme": "attributes"}, "--by needs a value with --scheme attributes"),
        ({"clients": 2, "by": "shape"}, "--by goes with --scheme attributes"),
        ({"scheme": "attributes", "by": "shape,,x"}, "--by must be columns with commas between"),
        ({"scheme": "attributes", "by": "x:two"}, "--by must be columns with commas between"),
        ({"scheme": "attributes", "by": "x:1"}, "cut into 2 to 100 parts, found 1"),
        ({"scheme": "attributes", "by": "x:2, x:3"}, "each column once, found 'x' twice"),
        ({"clients": 2, "mix": 1.1}, "--mix must be from 0 to 1, found 1.1"),
        ({"clients": 2, "mix": -0.1}, "--mix must be from 0 to 1"),
        ({"clients": 2, "held_out": 1}, "--held-out must be 0 or more and below 1, found 1.0"),
        ({"clients": 2, "held_out": -0.1}, "--held-out must be 0 or more and below 1"),
        ({"clients": 2, "test_fraction": 0}, "--test-fraction must be between 0 and 1"),
        ({"clients": 2, "test_fraction": 1}, "--test-fraction must be between 0 and 1"),
        ({"clients": 2, "image_size": 0}, "--image-size must be at least 1"),
        ({"clients": 2, "channels": 2}, "--channels must be 1 or 3, found 2"),
        ({"clients": 2, "emnist_split": "capitals"}, "--emnist-split must be one of byclass"),
    ],
)
def test_what_does_not_fit_is_refused(options, complaint) -> None:
    with pytest.raises(ValueError, match=complaint):
        PartitionParams(**options)
