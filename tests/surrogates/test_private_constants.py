"""Rule 2 of the privacy contract: what a release is made with is in the recipe, however many records there are."""

import numpy as np
import pytest

import stages.methods.feddm as feddm
import stages.privacy.clipping as clipping
from stages.privacy.mechanism import GaussianMechanism
from stages.privacy.streams import SecretStream

COUNTS = [0, 3, 24, 60]
RECIPE = {"clip_norm": 0.7, "noise_multiplier": 1.3, "sampling_rate": 0.3}
# FedDM releases its sums as they are: counts are released beside them.
DIVISOR, RELEASES = {"fedlap": 8, "feddm": 1}, {"fedlap": 2, "feddm": 3}


@pytest.mark.parametrize("method", ["fedlap", "feddm"])
def test_rate_clip_noise_and_divisor_are_the_options_whatever_the_size(federation, method, monkeypatch, read):
    mechanisms, coins, toss = [], [], SecretStream.bernoulli

    def noted(stream, probability, count):
        coins.append((probability, count))
        return toss(stream, probability, count)

    monkeypatch.setattr(SecretStream, "bernoulli", noted)
    for place in (clipping, feddm):

        def noisy_mean(total, mechanism, stream, original=place.noisy_mean):
            mechanisms.append(mechanism)
            return original(total, mechanism, stream)

        monkeypatch.setattr(place, "noisy_mean", noisy_mean)
    home = federation.client("00")
    agreed = GaussianMechanism(clip_norm=0.7, noise_multiplier=1.3, expected_size=DIVISOR[method])
    for count in COUNTS:
        mechanisms.clear()
        coins.clear()
        data = federation.write(home.with_name(f"of-{count}.parquet"), federation.digits.take(np.arange(count)))
        (event,) = read(federation.noisy("00", method, data=data, **RECIPE)).metadata.privacy
        assert mechanisms == [agreed] * RELEASES[method]
        assert coins == [(event["sampling_rate"], count)] * RELEASES[method], "the coins are those that are charged"
        stated = (event["sampling_rate"], event["clip_norm"], event["noise_multiplier"], event["steps"])
        assert stated == (0.3, 0.7, 1.3, RELEASES[method])
