"""Parameter counts, worked out by hand from the papers, and the shapes that come out."""

import pytest
import torch

from stages.nets.build import build, initialise
from stages.nets.params import InputShape
from stages.registry import NETWORKS

DIGITS, MNIST, CIFAR = (1, 8, 8), (1, 28, 28), (3, 32, 32)


def make(arch, image, classes=10, **size):
    channels, height, width = image
    shape = InputShape(channels=channels, height=height, width=width, num_classes=classes)
    net = build(NETWORKS.from_mapping({"arch": arch, **size}), shape)
    initialise(net, torch.Generator().manual_seed(0))
    return net.eval()


def conv(kernel, channels, filters, bias=True):
    return kernel * kernel * channels * filters + bias * filters


def linear(inputs, outputs):
    return inputs * outputs + outputs


def convnet(channels, last_map, classes=10, width=128):
    return conv(3, channels, width) + 2 * conv(3, width, width) + 3 * 2 * width + linear(width * last_map, classes)


VGG13_CONVS = (
    conv(3, 3, 64) + conv(3, 64, 64) + conv(3, 64, 128) + conv(3, 128, 128) + conv(3, 128, 256)
    + conv(3, 256, 256) + conv(3, 256, 512) + 3 * conv(3, 512, 512)
)  # fmt: skip
VGG11_CONVS = (
    conv(3, 3, 64) + conv(3, 64, 128) + conv(3, 128, 256) + conv(3, 256, 256) + conv(3, 256, 512)
    + 3 * conv(3, 512, 512)
)  # fmt: skip


def resnet_stage(channels, filters):
    """Two blocks of two convolutions and two norms; the first also has a projection where the width changes."""
    projection = 0 if channels == filters else conv(1, channels, filters, bias=False) + 2 * filters
    convs = conv(3, channels, filters, bias=False) + 3 * conv(3, filters, filters, bias=False)
    return convs + 4 * 2 * filters + projection


RESNET18 = (
    conv(3, 3, 64, bias=False) + 2 * 64
    + resnet_stage(64, 64) + resnet_stage(64, 128) + resnet_stage(128, 256) + resnet_stage(256, 512)
    + linear(512, 10)
)  # fmt: skip


# arch, image, classes, size, the sum above, the same as a literal (the papers' where they print one)
COUNTS = [
    ("softmax", DIGITS, 10, {}, linear(64, 10), 650),
    ("mlp", DIGITS, 10, {}, linear(64, 64) + linear(64, 10), 4_810),
    ("mlp", DIGITS, 10, {"width": 32, "depth": 2}, linear(64, 32) + linear(32, 32) + linear(32, 10), 3_466),
    ("convnet", MNIST, 10, {}, convnet(1, 16), 317_706),  # FedLAP-DP App. B.1
    ("convnet", CIFAR, 10, {}, convnet(3, 16), 320_010),  # FedDM Sec. 2.2
    ("convnet", CIFAR, 100, {}, convnet(3, 16, 100), 504_420),  # FedDM Table 2, divided by 10 clients
    ("convnet", DIGITS, 10, {}, convnet(1, 1), 298_506),
    ("convnet", DIGITS, 10, {"width": 32}, convnet(1, 1, width=32), 19_338),
    ("lenet5", MNIST, 10, {},
     conv(5, 1, 6) + 2 * conv(5, 6, 16) + conv(5, 16, 120) + linear(120, 84) + linear(84, 10), 64_122),
    ("vgg11", CIFAR, 10, {}, VGG11_CONVS + 2 * linear(512, 512) + linear(512, 10), 9_750_922),
    ("vgg13", CIFAR, 10, {},
     VGG13_CONVS + 2 * (2 * 64 + 2 * 128 + 2 * 256 + 4 * 512) + linear(512, 10), 9_416_010),
    ("resnet18", CIFAR, 10, {}, RESNET18, 11_173_962),
    ("emnist-cnn", MNIST, 10, {},
     conv(5, 1, 32) + conv(5, 32, 64) + linear(64 * 7 * 7, 512) + linear(512, 10), 1_663_370),  # McMahan et al.
    ("emnist-cnn", MNIST, 62, {},
     conv(5, 1, 32) + conv(5, 32, 64) + linear(64 * 7 * 7, 512) + linear(512, 62), 1_690_046),
    ("strided", MNIST, 10, {}, conv(5, 1, 8) + conv(5, 8, 16) + linear(16 * 4 * 4, 10), 5_994),
    ("strided", CIFAR, 10, {"width": 4}, conv(5, 3, 4) + conv(5, 4, 8) + linear(8 * 5 * 5, 10), 3_122),
]  # fmt: skip


@pytest.mark.parametrize(("arch", "image", "classes", "size", "by_hand", "printed"), COUNTS)
def test_parameter_counts(arch, image, classes, size, by_hand, printed):
    assert by_hand == printed
    assert sum(p.numel() for p in make(arch, image, classes, **size).parameters()) == printed


# arch, image, length of the embedding
SHAPES = [
    ("softmax", DIGITS, 64),
    ("softmax", (3, 5, 7), 105),
    ("mlp", DIGITS, 64),
    ("convnet", MNIST, 2048),
    ("convnet", CIFAR, 2048),
    ("convnet", DIGITS, 128),
    ("convnet", (2, 28, 17), 128 * 4 * 2),  # 28 is padded to 32; 17 halves to 8, 4, 2
    ("lenet5", MNIST, 84),
    ("lenet5", DIGITS, 84),
    ("lenet5", (3, 33, 40), 84),
    ("vgg11", CIFAR, 512),
    ("vgg11", (1, 64, 64), 512),
    ("vgg13", CIFAR, 512),
    ("vgg13", (1, 33, 64), 1024),
    ("resnet18", CIFAR, 512),
    ("resnet18", DIGITS, 512),
    ("resnet18", (1, 5, 3), 512),
    ("emnist-cnn", MNIST, 512),
    ("emnist-cnn", (3, 9, 4), 512),
    ("strided", MNIST, 16 * 4 * 4),
    ("strided", (3, 13, 20), 16 * 1 * 2),
]


@pytest.mark.parametrize(("arch", "image", "length"), SHAPES)
def test_embedding_and_logits(arch, image, length):
    net = make(arch, image, classes=7)
    x = torch.randn(2, *image, generator=torch.Generator().manual_seed(1))
    h = net.features(x)
    assert h.shape == (2, length)
    last = net.classifier[-1]
    assert isinstance(last, torch.nn.Linear)
    assert net(x).shape == (2, 7)
    assert torch.equal(net(x), net.head(h))
    torch.testing.assert_close(net(x), h @ last.weight.T + last.bias)
    assert net(x).isfinite().all()


@pytest.mark.parametrize(
    ("arch", "image", "size", "message"),
    [
        ("convnet", (1, 7, 8), {}, "convnet of depth 3 takes images of at least 8x8 pixels, found 7x8"),
        ("convnet", DIGITS, {"depth": 4}, "convnet of depth 4 takes images of at least 16x16 pixels, found 8x8"),
        ("vgg11", DIGITS, {}, "vgg11 takes images of at least 32x32 pixels, found 8x8"),
        ("vgg11", (3, 32, 31), {}, "vgg11 takes images of at least 32x32 pixels, found 32x31"),
        ("vgg13", MNIST, {}, "vgg13 takes images of at least 32x32 pixels, found 28x28"),
        ("emnist-cnn", (1, 3, 8), {}, "emnist-cnn takes images of at least 4x4 pixels, found 3x8"),
        ("strided", (1, 13, 12), {}, "strided takes images of at least 13x13 pixels, found 13x12"),
    ],
)
def test_images_too_small_are_refused(arch, image, size, message):
    with pytest.raises(ValueError, match=message):
        make(arch, image, **size)


@pytest.mark.parametrize(
    ("arch", "image", "layers"),
    [
        ("softmax", DIGITS, ["logits"]),
        ("mlp", DIGITS, ["logits"]),
        ("convnet", DIGITS, ["logits"]),
        ("lenet5", MNIST, ["fc1", "logits"]),
        ("vgg11", CIFAR, ["fc1", "fc2", "logits"]),
        ("vgg13", CIFAR, ["logits"]),
        ("resnet18", DIGITS, ["logits"]),
        ("emnist-cnn", MNIST, ["fc1", "logits"]),
        ("strided", MNIST, ["logits"]),
    ],
)
def test_the_classifier_is_found_by_name(arch, image, layers):
    """FedPVR's part: the last tensors of the network, and no others, begin with `classifier.`."""
    names = [name for name, _ in make(arch, image).named_parameters()]
    expected = [f"classifier.{layer}.{kind}" for layer in layers for kind in ("weight", "bias")]
    assert [name for name in names if name.startswith("classifier.")] == expected == names[-len(expected) :]
    if arch == "vgg11":
        assert len(names) - len(expected) == 16  # where Fedssyn's code starts the correction
