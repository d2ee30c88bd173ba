"""A file of FedLAP or FedDM states every parameter that had an effect on it, and no other."""

import pytest

from stages.methods.params.feddm import FedDmEncoding, FedDmOptimisation
from stages.methods.params.fedlap import FedLapEncoding, FedLapOptimisation
from stages.registry import ENCODERS, RULES

DP = {"noise_multiplier": 1.0, "sampling_rate": 0.3}
MOVES = {"image_descent", "image_rate", "image_momentum"}
COMMON = {"method", "images_per_class", "classes", "init", "tell_examples"} | MOVES
GRADIENTS = COMMON | {
    "batch_size", "radius", "trajectories", "points", "batches", "image_steps", "model_steps", "distance", "match",
    "calibrate", "learning_rate", "lr_schedule", "targets", "begin",
}  # fmt: skip
EVENT = {"unit", "noise_multiplier", "sampling_rate", "clip_norm"}
FEATURES = COMMON | {"iterations", "rho", "steps_per_look"}
BY_ROWS, RADIUS = {"rows"}, {"radius_steps", "radius_examples"}


@pytest.mark.parametrize(
    ("params", "stated"),
    [
        (FedLapEncoding(), GRADIENTS | BY_ROWS | RADIUS | {"mse_weight", "least_images"}),
        (FedLapEncoding(classes="0,3"), GRADIENTS | BY_ROWS | RADIUS | {"mse_weight"}),
        (FedLapEncoding(distance="cosine"), GRADIENTS | BY_ROWS | RADIUS | {"least_images"}),
        (FedLapEncoding(distance="mse"), GRADIENTS | RADIUS | {"least_images"}),
        (FedLapEncoding(**DP), GRADIENTS | BY_ROWS | EVENT | {"mse_weight"}),
        (FedLapEncoding(**DP, classes="own"), GRADIENTS | BY_ROWS | EVENT | {"mse_weight"}),
        (FedDmEncoding(), FEATURES | {"batch_size", "least_images"}),
        (FedDmEncoding(**DP), FEATURES | EVENT | {"count_share"}),
        (
            FedDmEncoding(iterations=0, init="real"),
            FEATURES - MOVES - {"steps_per_look"} | {"least_images"},
        ),
        (FedDmEncoding(image_descent="adam"), FEATURES - {"image_momentum"} | {"batch_size", "least_images"}),
        (FedLapEncoding(**DP, image_descent="adam"), GRADIENTS - {"image_momentum"} | BY_ROWS | EVENT | {"mse_weight"}),
        (
            FedLapOptimisation(radius=1.0),
            {
                "rule", "weights", "strategy", "radius", "server_steps", "calibrated", "learning_rate", "lr_schedule",
                "begin",
            },
        ),
        (
            FedDmOptimisation(),
            {"rule", "rho", "server_epochs", "batch_size", "learning_rate", "lr_schedule"},
        ),
    ],
)  # fmt: skip
def test_what_had_an_effect_is_stated(params, stated):
    found = params.to_json()
    assert set(found) == stated
    family = ENCODERS if "method" in found else RULES
    assert family.from_mapping(found) == params, "what is stated gives the same parameters again"


@pytest.mark.parametrize(
    ("params", "name", "value"),
    [
        (FedLapEncoding(), "classes", "own"),
        (FedLapEncoding(**DP), "classes", "all"),
        (FedLapEncoding(), "image_rate", 1.0),
        (FedDmEncoding(image_descent="adam"), "image_rate", 0.1),
        (FedLapEncoding(), "mse_weight", 0.1),
        (FedLapEncoding(**DP), "clip_norm", 1.0),
        (FedDmEncoding(**DP), "clip_norm", 5.0),
        (FedDmEncoding(**DP), "count_share", 0.25),
        (FedDmEncoding(), "least_images", 1),
    ],
)
def test_a_default_that_follows_from_another_parameter_is_the_value_that_is_used(params, name, value):
    assert params.to_json()[name] == value


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"method": "fedlap", "distance": "mse", "mse_weight": 0.2}, "--mse-weight goes with --distance cosine.mse"),
        ({"method": "fedlap", "distance": "mse", "rows": "sum"}, "--rows goes with --distance cosine or"),
        ({"method": "fedlap", "classes": "all", "least_images": 3}, "--least-images goes with --classes own"),
        ({"method": "fedlap", **DP, "radius_steps": 3}, "--radius-steps goes with --begin model and without DP"),
        ({"method": "feddm", "count_share": 0.3}, "--count-share goes with --noise-multiplier or --target-epsilon"),
        ({"method": "feddm", "clip_norm": 3.0}, "--clip-norm goes with --noise-multiplier or --target-epsilon"),
        ({"method": "feddm", **DP, "batch_size": 8}, "--batch-size goes with --iterations above 0 and without DP"),
        ({"method": "feddm", "iterations": 0, "init": "real", "image_rate": 2.0}, "--image-rate goes with"),
    ],
)
def test_a_parameter_without_an_effect_is_refused(given, said):
    with pytest.raises(ValueError, match=said):
        ENCODERS.from_mapping(given)


def test_a_servers_radius_goes_with_a_strategy_that_has_one():
    with pytest.raises(ValueError, match="--radius goes with --strategy min, max or median"):
        RULES.from_mapping({"rule": "fedlap", "strategy": "fixed", "radius": 1.0})


def test_null_takes_back_what_a_recipe_has_from_another():
    again = ENCODERS.from_mapping({"method": "fedlap", "image_rate": None, "least_images": None})
    assert again == FedLapEncoding()
