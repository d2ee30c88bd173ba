"""TOFU on trained networks, whose softmax is saturated: what is sent decodes to what was measured, or is not sent."""

import numpy as np
import pytest
import torch
from torch import nn

import stages.proxies.encoder as encoder
from artifacts.formats import tensors_file
from stages.methods import tofu
from stages.methods.params.tofu import TofuEncoding
from stages.methods.row_cosines import flat
from stages.nets.build import build, initialise
from stages.nets.params import InputShape
from stages.registry import NETWORKS

GREY = InputShape(channels=1, height=8, width=8, num_classes=10)
COLOUR = InputShape(channels=3, height=32, width=32, num_classes=10)


def trained(shape, net, steps):
    """A network that has learnt 64 random images by heart, and what five steps on 64 others change."""
    module = build(NETWORKS.from_mapping(net), shape)
    random = torch.Generator().manual_seed(0)
    initialise(module, random)
    module.train()
    size = (128, shape.channels, shape.height, shape.width)
    images, labels = torch.randn(size, generator=random), torch.randint(10, (128,), generator=random)

    def learn(rows, steps, optimiser):
        for _ in range(steps):
            optimiser.zero_grad()
            nn.functional.cross_entropy(module(images[rows]), labels[rows]).backward()
            optimiser.step()

    learn(slice(0, 64), steps, torch.optim.Adam(module.parameters(), lr=0.01))
    start = {name: weight.detach().clone() for name, weight in module.named_parameters()}
    learn(slice(64, 128), 5, torch.optim.SGD(module.parameters(), lr=0.05))
    update = {name: start[name] - weight.detach() for name, weight in module.named_parameters()}
    module.load_state_dict(start, strict=False)
    return module, update, images[:64]


CASES = {
    "8×8 grey": (GREY, {"arch": "mlp", "width": 32}, 200),
    "32×32 in colour": (COLOUR, {"arch": "convnet", "width": 8, "depth": 2}, 60),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("pixels", ["float32", "uint8"])
def test_the_decoder_gets_what_the_search_found_on_a_saturated_network(case, pixels):
    shape, net, steps = CASES[case]
    module, update, learnt = trained(shape, net, steps)
    with torch.no_grad():
        assert float(module(learnt).softmax(1).amax(1).median()) > 0.99, "trained enough to be saturated"
    params = TofuEncoding(images=8, iterations=40, pixels=pixels)
    random = torch.Generator().manual_seed(2)
    images = torch.randn((8, shape.channels, shape.height, shape.width), generator=random) / 2
    sent = {}

    def as_seen(found):
        sent.update(encoder.sent_pixels(found.numpy(), pixels))
        return torch.from_numpy(encoder.seen_pixels(sent))

    made = tofu.encode(
        module, update, (images, torch.randn((8, 10), generator=random), torch.randn(8, generator=random)),
        params=params, sent=as_seen, report=lambda *_: None,
    )  # fmt: skip
    sent |= {"residuals": made.proxy.residuals.numpy(), "scales": made.proxy.scales.numpy()}
    target = flat([update[name] for name, _ in module.named_parameters()])
    found = torch.cat([torch.from_numpy(part).flatten() for part in encoder.carried(module, sent).values()])
    assert tofu.cosine_of(found, target) == pytest.approx(made.cosine, abs=1e-5)
    lost = 0.01 if pixels == "float32" else 0.1  # rounding to bytes moves units that are nearly off
    assert made.cosine > max(made.cosines) - lost
    assert made.cosine > 0.4


@pytest.fixture
def client(tmp_path, fedsynth):
    """A client with its update."""
    run = tmp_path / "run"
    model, update = run / "public/model-0000.safetensors", run / "clients/00/private/update-0001.safetensors"
    for words in (
        ["partition", "digits", "--clients", 2, "-o", run],
        ["init-model", "--arch", "mlp", "--width", 8, "--like", run / "public/test.parquet", "-o", model],
        ["train-client", model, run / "clients/00/private/data.parquet", "--local-steps", 3, "-o", update],
    ):
        assert fedsynth(*words, "-q")[0] == 0
    return model, update, run / "clients/00/outbox/proxy-0001.safetensors"


def backwards(module, sent):
    """A decoder that arrives at the opposite of what was encoded."""
    return {name: -part for name, part in carried(module, sent).items()}


carried = encoder.carried


@pytest.mark.parametrize("least", ["0", "0.999"])
def test_a_useless_proxy_is_refused_and_nothing_is_written(client, fedsynth, monkeypatch, least):
    model, update, out = client
    if least == "0":
        monkeypatch.setattr(encoder, "carried", backwards)
    words = ("--method", "tofu", "--images", 4, "--iterations", 3, "--least-cosine", least)
    code, _, err = fedsynth("encode", model, update, *words, "-q", "-o", out)
    stated = " ".join(err.split())
    assert code == 3 and "decodes to a cosine of" in stated and "--fallback delta" in stated
    assert not out.exists() and not (out.parent.parent / "egress.jsonl").exists()


def test_a_message_that_decodes_to_less_than_was_measured_is_refused(client, fedsynth, monkeypatch):
    """Above --least-cosine, but not what the encoder found."""
    model, update, out = client

    def worse(module, sent):
        return {name: part + 0.2 * np.abs(part).max() for name, part in carried(module, sent).items()}

    monkeypatch.setattr(encoder, "carried", worse)
    words = ("--method", "tofu", "--images", 4, "--iterations", 3, "--least-cosine", 0)
    code, _, err = fedsynth("encode", model, update, *words, "-q", "-o", out)
    assert code == 3 and "decodes to a cosine of" in err and not out.exists()


def test_instead_of_a_useless_proxy_the_full_update_may_leave(client, fedsynth, fedsynth_json, tmp_path):
    model, update, out = client
    words = ("--method", "tofu", "--images", 4, "--iterations", 3, "--least-cosine", 0.999, "--fallback", "delta")
    stated = fedsynth_json("encode", model, update, *words, "-o", out)
    assert stated["sent"] == "the full update" and "a proxy of 4 images" in stated["reason"]
    message = tensors_file.read(out)
    assert (message.metadata.kind, message.metadata.method, message.metadata.disclosures) == (
        "message", "delta", ("update",),
    )  # fmt: skip
    for name, part in tensors_file.read(update).tensors.items():
        np.testing.assert_array_equal(message.tensors[name], part)
    assert fedsynth("aggregate", model, out, "-q", "-o", tmp_path / "next.safetensors")[0] == 0
    code, shown, _ = fedsynth("audit", out.parents[3], "--replay")
    assert code == 0 and "PASS" in shown
