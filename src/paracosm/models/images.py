"""Networks for images, classified: from a perceptron to ResNet-152 and VGG-19."""

import math
from collections.abc import Callable, Sequence

from torch import Tensor, nn
from torch._subclasses.fake_tensor import is_fake
from torch.nn import functional


def mlp(shape: Sequence[int], classes: int, hidden: int = 64, layers: int = 1) -> "MLP":
    """Return inputs -> `layers` times `hidden` ReLU units -> classes, for inputs of any shape.

    Without `layers` it is multinomial logistic regression.
    """
    return MLP(math.prod(shape), (hidden,) * layers, classes)


def _draw_weights(module: nn.Sequential) -> None:
    """Draw as He, Zhang, Ren, Sun, "Delving Deep into Rectifiers", 2015; biases are zero."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


class MLP(nn.Module):
    """Examples [batch, ...] to logits [batch, classes]."""

    def __init__(self, inputs: int, hidden: Sequence[int], classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for width in hidden:
            layers += [nn.Linear(inputs, width), nn.ReLU()]
            inputs = width
        self.layers = nn.Sequential(*layers, nn.Linear(inputs, classes))
        linear = [i for i, layer in enumerate(self.layers) if isinstance(layer, nn.Linear)]
        # Layers are split in pairs, by outputs and then by inputs; an odd last one is not split.
        self.tensor_parallel = {
            f"layers.{i}": style
            for pair in zip(linear[::2], linear[1::2], strict=False)
            for i, style in zip(pair, ("column", "row"), strict=True)
        }
        _draw_weights(self.layers)

    def forward(self, examples: Tensor) -> Tensor:
        logits: Tensor = self.layers(examples.flatten(1))
        return logits


def paper_cnn(shape: Sequence[int], classes: int) -> nn.Module:
    """Return the network of TensorFlow's CIFAR-10 tutorial for images of any size (its: 3x24x24).

    Zhang, Tanimura, Nakada, "A Hybrid Simulator to Analyze Gradient Staleness Effect" train it.
    Two convolutions of 64 5x5 filters, each with 3x3/2 max pooling and local response
    normalisation (after the pooling in the first, before it in the second), dense layers of 384
    and 192, ReLU throughout, and a linear layer to the classes. Weights are drawn from a normal
    distribution truncated at two standard deviations: 0.05 for convolutions, 0.04 for dense
    layers, 1/192 for the last. Biases are 0 in the first and last layer, else 0.1. The tutorial's
    weight decay (0.004 in the dense layers) is no part of the network and is left out.
    """
    channels, height, width = shape
    halved = (height + 1) // 2, (width + 1) // 2
    quartered = (halved[0] + 1) // 2, (halved[1] + 1) // 2
    conv1 = nn.Conv2d(channels, 64, 5, padding=2)
    conv2 = nn.Conv2d(64, 64, 5, padding=2)
    dense3 = nn.Linear(64 * quartered[0] * quartered[1], 384)
    dense4 = nn.Linear(384, 192)
    linear = nn.Linear(192, classes)
    _initialise(conv1, 0.05, 0.0)
    _initialise(conv2, 0.05, 0.1)
    _initialise(dense3, 0.04, 0.1)
    _initialise(dense4, 0.04, 0.1)
    _initialise(linear, 1 / 192, 0.0)
    return nn.Sequential(
        conv1,
        nn.ReLU(),
        _pool(height, width),
        _normalise(),
        conv2,
        nn.ReLU(),
        _normalise(),
        _pool(*halved),
        nn.Flatten(),
        dense3,
        nn.ReLU(),
        dense4,
        nn.ReLU(),
        linear,
    )


def _initialise(layer: nn.Conv2d | nn.Linear, deviation: float, bias: float) -> None:
    if not is_fake(layer.weight):  # PyTorch draws again what is too large: it looks at values
        nn.init.trunc_normal_(layer.weight, std=deviation, a=-2 * deviation, b=2 * deviation)
    assert layer.bias is not None
    nn.init.constant_(layer.bias, bias)


def _pool(height: int, width: int) -> nn.MaxPool2d:
    """Return 3x3 pooling with stride 2 and TensorFlow's SAME padding: ceil(n / 2) outputs."""
    # An odd size is padded by one on both sides; an even one at its end only.
    return nn.MaxPool2d(3, stride=2, padding=(height % 2, width % 2), ceil_mode=True)


def _normalise() -> nn.LocalResponseNorm:
    """Return TensorFlow's lrn(depth_radius=4, bias=1, alpha=0.001/9, beta=0.75)."""
    # TensorFlow sums squares over 2 * 4 + 1 channels, where PyTorch takes their mean: alpha times 9
    return nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1.0)


BLOCKS = 3  # a stage: 6n + 2 layers with n = 3


def resnet20(shape: Sequence[int], classes: int) -> nn.Module:
    """Return the network with 16, 32, 64 filters, batch normalisation and shortcuts of kind A.

    He, Zhang, Ren, Sun, "Deep Residual Learning for Image Recognition", 2015, section 4.2.

    Shortcuts have no parameters: where a stage halves the image, they take every second pixel and
    fill the new channels with zeros. Weights are drawn as by He et al.
    """
    channels, _, _ = shape
    layers: list[nn.Module] = [_convolution(channels, 16), nn.BatchNorm2d(16), nn.ReLU()]
    width = 16
    for stage, filters in enumerate((16, 32, 64)):
        for block in range(BLOCKS):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(_Block(width, filters, stride))
            width = filters
    module = nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)
    )
    _draw_weights(module)
    return module


def _convolution(channels: int, filters: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels, filters, 3, stride=stride, padding=1, bias=False)


class _Block(nn.Module):
    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            _convolution(channels, filters, stride),
            nn.BatchNorm2d(filters),
            nn.ReLU(),
            _convolution(filters, filters),
            nn.BatchNorm2d(filters),
        )
        self.stride = stride
        self.added = filters - channels

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x
        if self.added:
            shortcut = functional.pad(
                x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.added)
            )
        return functional.relu(self.residual(x) + shortcut)


class ResNet(nn.Module):
    """Images [batch, channels, height, width] to logits [batch, classes].

    He et al. 2016, with the stem for ImageNet, as commonly implemented. The stride of a bottleneck
    is in its 3x3 convolution. The last stage has an effect only for images with sides of 32 pixels
    or more; smaller ones work down to a single pixel.
    """

    def __init__(
        self,
        block: "type[BasicBlock | Bottleneck]",
        depths: Sequence[int],
        channels: int,
        classes: int,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        wide = 64 * block.expansion
        self.layer1 = _stage(block, 64, 64, depths[0], stride=1)
        self.layer2 = _stage(block, wide, 128, depths[1], stride=2)
        self.layer3 = _stage(block, 2 * wide, 256, depths[2], stride=2)
        self.layer4 = _stage(block, 4 * wide, 512, depths[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8 * wide, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(self.avgpool(x).flatten(1))
        return logits


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut."""

    expansion = 1

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(channels, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x if self.downsample is None else self.downsample(x)
        out: Tensor = self.relu(y)
        return out


class Bottleneck(nn.Module):
    """A 3x3 convolution between two 1x1 ones, with a shortcut."""

    expansion = 4

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        wide = width * self.expansion
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, wide, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(wide)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(channels, wide, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        out: Tensor = self.relu(y)
        return out


def _shortcut(channels: int, wide: int, stride: int) -> nn.Sequential | None:
    if stride == 1 and channels == wide:
        return None
    return nn.Sequential(nn.Conv2d(channels, wide, 1, stride, bias=False), nn.BatchNorm2d(wide))


def _stage(
    block: type[BasicBlock | Bottleneck], channels: int, width: int, depth: int, stride: int
) -> nn.Sequential:
    first = block(channels, width, stride)
    rest = (block(width * block.expansion, width, 1) for _ in range(depth - 1))
    return nn.Sequential(first, *rest)


def _resnet(
    block: type[BasicBlock | Bottleneck], depths: Sequence[int]
) -> Callable[[Sequence[int], int], ResNet]:
    return lambda shape, classes: ResNet(block, depths, shape[0], classes)


resnet18 = _resnet(BasicBlock, (2, 2, 2, 2))
resnet34 = _resnet(BasicBlock, (3, 4, 6, 3))
resnet50 = _resnet(Bottleneck, (3, 4, 6, 3))
resnet101 = _resnet(Bottleneck, (3, 4, 23, 3))
resnet152 = _resnet(Bottleneck, (3, 8, 36, 3))


class VGG(nn.Module):
    """Images [batch, channels, height, width] to logits [batch, classes].

    Simonyan and Zisserman 2015: 3x3 convolutions, then three wide linear layers. Pooling to 7x7
    before these allows images of any size of 32 pixels or more, with the same number of parameters.
    """

    def __init__(
        self, depths: Sequence[int], channels: int, classes: int, normalise: bool = False
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for depth, width in zip(depths, (64, 128, 256, 512, 512), strict=True):
            for _ in range(depth):
                layers.append(nn.Conv2d(channels, width, kernel_size=3, padding=1))
                layers += [nn.BatchNorm2d(width)] if normalise else []
                layers.append(nn.ReLU(inplace=True))
                channels = width
            layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(7)
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            nn.Linear(4096, classes),
        )
        for module in self.features:
            if isinstance(module, nn.Conv2d):
                assert module.bias is not None
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.avgpool(self.features(images)).flatten(1))
        return logits


def _vgg(depths: Sequence[int], normalise: bool = False) -> Callable[[Sequence[int], int], VGG]:
    return lambda shape, classes: VGG(depths, shape[0], classes, normalise)


vgg11 = _vgg((1, 1, 2, 2, 2))  # configuration A
vgg16 = _vgg((2, 2, 3, 3, 3))  # D
vgg19 = _vgg((2, 2, 4, 4, 4))  # E
vgg19_bn = _vgg((2, 2, 4, 4, 4), normalise=True)  # E, normalised after every convolution
