"""ResNet-50 v1.5 (a bottleneck's stride is in its 3x3 convolution) as torchvision builds it,
trained with SGD in memory format channels_last. Started by bench/peers/compare."""
import torch
from torch import nn
import torch.nn.functional as F

import torch_steps


def conv_bn(inputs, outputs, kernel, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
                         nn.BatchNorm2d(outputs))


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.first = conv_bn(inputs, width, 1)
        self.second = conv_bn(width, width, 3, stride)
        self.third = conv_bn(width, 4 * width, 1)
        projected = stride != 1 or inputs != 4 * width
        self.shortcut = conv_bn(inputs, 4 * width, 1, stride) if projected else nn.Identity()

    def forward(self, x):
        y = F.relu(self.first(x), inplace=True)
        y = F.relu(self.second(y), inplace=True)
        return F.relu(self.third(y) + self.shortcut(x), inplace=True)


def resnet50():
    layers = [conv_bn(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, stride if block == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


def main():
    args = torch_steps.options(**{"image-size": int, "momentum": float})
    start = torch_steps.Start(args)
    network = resnet50().to(args.device, memory_format=torch.channels_last)
    parameters = list(network.parameters())
    start.set(parameters)
    # dpbench's images are [samples, height, width, channels]: channels_last in memory already
    images = start.batch("x").permute(0, 3, 1, 2)
    labels = start.batch("label").long()
    network = torch_steps.distribute(args, network)
    update, fused = torch_steps.optimizer(torch.optim.SGD, parameters, lr=args.lr,
                                          momentum=args.momentum, weight_decay=args.weight_decay)
    torch_steps.run(args, parameters, update, fused,
                    lambda: F.cross_entropy(network(images), labels))


main()
