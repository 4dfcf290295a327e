#!/usr/bin/python3
"""Loss and gradients of tiny networks, for bench/tests/test_torch_networks.c, in float64.

    /usr/bin/python3 bench/peers/network_vectors.py > bench/tests/data/torch_networks.json

Needs PyTorch (Debian: python3-torch, made with 1.13.1); no part of the build or of the tests does.

Each network is written with torch.nn.functional after the original that is named beside it, and its
gradients come from autograd. Parameters and images are integers divided by 64, so that both sides
compute from the same values; gradients are integers times a step of their tensor. Nothing lies near
a kink (a ReLU at 0, two equal maxima in a pool): rounding cannot decide on which side a value is.

Images are written as [samples, H, W, C]. A linear layer behind an image reads it in that order too:
flatten() permutes the values, so the weight's columns need no permutation.
"""
import json
import math

import torch
import torch.nn.functional as F

UNIT = 64
SCALE = 0.5  # of the sum over the samples
KINK = 1e-5
GRADIENT_STEPS = 2 ** 18  # to a tensor's largest gradient


class Network:
    """Parameters are made where they are first used, which is the order of registration."""

    def __init__(self, seed):
        self.random = torch.Generator().manual_seed(seed)
        self.parameters, self.running = {}, {}

    def integers(self, low, high, *shape):
        return torch.randint(low, high, shape, generator=self.random)

    def values(self, *shape):
        return self.integers(-UNIT, UNIT + 1, *shape).double() / UNIT

    def parameter(self, name, *shape, low=-UNIT // 2, high=UNIT // 2):
        if name not in self.parameters:
            value = self.integers(low, high + 1, *shape).double() / UNIT
            self.parameters[name] = value.requires_grad_()
        return self.parameters[name]

    def norm(self, name, count):
        """Scale and shift of a normalisation, near 1 and near 0."""
        return (self.parameter(name + ".weight", count, low=UNIT // 2, high=3 * UNIT // 2),
                self.parameter(name + ".bias", count))

    # ---- layers of image networks ----

    def conv(self, name, x, channels, kernel, stride=1, pad=0, bias=False):
        weight = self.parameter(name + ".weight", channels, x.shape[1], kernel, kernel)
        shift = self.parameter(name + ".bias", channels) if bias else None
        return F.conv2d(x, weight, shift, stride, pad)

    def batch_norm(self, name, x):
        weight, bias = self.norm(name, x.shape[1])
        mean, variance = torch.zeros_like(weight).detach(), torch.ones_like(weight).detach()
        self.running[name] = (mean, variance)  # updated in place
        return F.batch_norm(x, mean, variance, weight, bias, training=True)

    def conv_bn(self, conv, bn, x, channels, kernel, stride=1):
        return self.batch_norm(bn, self.conv(conv, x, channels, kernel, stride, kernel // 2))

    def linear(self, name, x, features):
        return F.linear(x, self.parameter(name + ".weight", features, x.shape[-1]),
                        self.parameter(name + ".bias", features))

    # ---- layers of language networks ----

    def layer_norm(self, name, x, **eps):
        return F.layer_norm(x, x.shape[-1:], *self.norm(name, x.shape[-1]), **eps)

    def embedding(self, name, ids, rows):
        return F.embedding(ids, self.parameter(name + ".weight", rows, HIDDEN))

    def conv1d(self, name, x, features):
        """Hugging Face's Conv1D: a linear layer whose weight is [in, out]."""
        return (x @ self.parameter(name + ".weight", x.shape[-1], features) +
                self.parameter(name + ".bias", features))


def relu(x):
    assert x.abs().min() > KINK
    return F.relu(x)


def max_pool(x, kernel, stride, pad=0):
    """Of values behind a ReLU: a padded zero equals the ones there."""
    planes = x.detach().flatten(0, 1)[:, None]
    two = F.unfold(planes, kernel, stride=stride, padding=pad).topk(2, dim=1).values
    assert ((two[:, 0] == 0) | (two[:, 0] - two[:, 1] > KINK)).all()
    return F.max_pool2d(x, kernel, stride, pad)


def flatten(x):
    return x.permute(0, 2, 3, 1).flatten(1)


# ---- image networks: their logits ----

def mlp(net, x):
    """mnist-mlp: three linear layers."""
    x = relu(net.linear("fc1", flatten(x), 9))
    x = relu(net.linear("fc2", x, 7))
    return net.linear("fc3", x, 5)


def cnn(net, x):
    """mnist-cnn: pytorch/examples mnist/main.py without dropout."""
    x = relu(net.conv("conv1", x, 3, 3, bias=True))
    x = relu(net.conv("conv2", x, 4, 3, bias=True))
    x = relu(net.linear("fc1", flatten(max_pool(x, 2, 2)), 8))
    return net.linear("fc2", x, 5)


def vgg(net, x):
    """torchvision's VGG, whose adaptive pool has windows that overlap: 3x3 to 2x2."""
    x = relu(net.conv("features.0", x, 4, 3, pad=1, bias=True))
    x = relu(net.conv("features.2", max_pool(x, 2, 2), 5, 3, pad=1, bias=True))
    x = flatten(F.adaptive_avg_pool2d(x, 2))
    return net.linear("classifier.3", relu(net.linear("classifier.0", x, 7)), 5)


def resnet(net, x):
    """torchvision's ResNet v1.5: the stem, a bottleneck with downsample, a basic block."""
    x = relu(net.conv_bn("conv1", "bn1", x, 4, 7, 2))
    x = max_pool(x, 3, 2, 1)
    y = relu(net.conv_bn("layer1.0.conv1", "layer1.0.bn1", x, 3, 1))
    y = relu(net.conv_bn("layer1.0.conv2", "layer1.0.bn2", y, 3, 3, 2))
    y = net.conv_bn("layer1.0.conv3", "layer1.0.bn3", y, 8, 1)
    x = relu(y + net.conv_bn("layer1.0.downsample.0", "layer1.0.downsample.1", x, 8, 1, 2))
    y = relu(net.conv_bn("layer2.0.conv1", "layer2.0.bn1", x, 8, 3))
    x = relu(net.conv_bn("layer2.0.conv2", "layer2.0.bn2", y, 8, 3) + x)
    return net.linear("fc", flatten(F.adaptive_avg_pool2d(x, 1)), 5)


def cifar_resnet(net, x):
    """He et al., 2015, section 4.2, with the shortcut of option A as akamaster/
    pytorch_resnet_cifar10 writes it: every second pixel, new channels of zeros on both sides."""
    x = relu(net.conv_bn("conv1", "bn1", x, 4, 3))
    y = relu(net.conv_bn("layer1.0.conv1", "layer1.0.bn1", x, 4, 3))
    x = relu(net.conv_bn("layer1.0.conv2", "layer1.0.bn2", y, 4, 3) + x)
    y = relu(net.conv_bn("layer2.0.conv1", "layer2.0.bn1", x, 8, 3, 2))
    y = net.conv_bn("layer2.0.conv2", "layer2.0.bn2", y, 8, 3)
    x = relu(y + F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 2, 2)))
    return net.linear("fc", flatten(F.adaptive_avg_pool2d(x, 1)), 5)


def images(seed, logits_of, channels, size, samples=4, classes=5):
    net = Network(seed)
    x = net.values(samples, channels, size, size)
    label = net.integers(0, classes, samples)
    loss = F.cross_entropy(logits_of(net, x), label, reduction="sum")
    return net, loss, {"x": (x.permute(0, 2, 3, 1) * UNIT).int(), "label": label}


# ---- language networks: of the shapes in bench/tests/tiny_transformers.c ----

BLOCKS, HEADS, HIDDEN, INNER, WORDS, POSITIONS, SEQUENCE = 2, 2, 16, 64, 37, 12, 8
PREDICTED = 2  # of a sample, by BERT
SAMPLES = 3


def attention(query, key, value, causal):
    def heads(x):
        return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)

    scores = heads(query) @ heads(key).transpose(2, 3) / math.sqrt(HIDDEN // HEADS)
    if causal:
        scores = scores.masked_fill(torch.ones(SEQUENCE, SEQUENCE).triu(1).bool(), -math.inf)
    return (F.softmax(scores, dim=-1) @ heads(value)).transpose(1, 2).flatten(2)


def bert_block(net, name, x):
    part = name + ".attention.self."
    query, key, value = (net.linear(part + n, x, HIDDEN) for n in ("query", "key", "value"))
    y = net.linear(name + ".attention.output.dense", attention(query, key, value, False), HIDDEN)
    x = net.layer_norm(name + ".attention.output.LayerNorm", x + y, eps=1e-12)
    y = F.gelu(net.linear(name + ".intermediate.dense", x, INNER))
    y = net.linear(name + ".output.dense", y, HIDDEN)
    return net.layer_norm(name + ".output.LayerNorm", x + y, eps=1e-12)


def bert(seed):
    """Hugging Face's BertForPreTraining; hidden words' losses are averaged in each sample."""
    net = Network(seed)
    tokens = net.integers(0, WORDS, SAMPLES, SEQUENCE)
    segments = (torch.arange(SEQUENCE) >= torch.tensor([[4], [3], [6]])).long()
    position = torch.tensor([[1, 6], [0, 7], [3, 4]])
    hidden_words = net.integers(0, WORDS, SAMPLES, PREDICTED)
    label = torch.tensor([0, 1, 1])

    x = net.embedding("bert.embeddings.word_embeddings", tokens, WORDS)
    x = x + net.embedding("bert.embeddings.position_embeddings", torch.arange(SEQUENCE), POSITIONS)
    x = x + net.embedding("bert.embeddings.token_type_embeddings", segments, 2)
    x = net.layer_norm("bert.embeddings.LayerNorm", x, eps=1e-12)
    for b in range(BLOCKS):
        x = bert_block(net, f"bert.encoder.layer.{b}", x)
    pooled = torch.tanh(net.linear("bert.pooler.dense", x[:, 0], HIDDEN))
    bias = net.parameter("cls.predictions.bias", WORDS)
    y = x.gather(1, position[:, :, None].expand(-1, -1, HIDDEN))
    y = F.gelu(net.linear("cls.predictions.transform.dense", y, HIDDEN))
    y = net.layer_norm("cls.predictions.transform.LayerNorm", y, eps=1e-12)
    words = F.linear(y, net.parameters["bert.embeddings.word_embeddings.weight"], bias)
    relation = net.linear("cls.seq_relationship", pooled, 2)
    loss = (F.cross_entropy(words.flatten(0, 1), hidden_words.flatten(), reduction="sum") /
            PREDICTED + F.cross_entropy(relation, label, reduction="sum"))
    return net, loss, {"tokens": tokens, "segments": segments, "predict_position": position,
                       "predict_token": hidden_words, "label": label}


def gpt2_block(net, name, x):
    y = net.conv1d(name + ".attn.c_attn", net.layer_norm(name + ".ln_1", x), 3 * HIDDEN)
    x = x + net.conv1d(name + ".attn.c_proj", attention(*y.split(HIDDEN, dim=2), True), HIDDEN)
    y = net.conv1d(name + ".mlp.c_fc", net.layer_norm(name + ".ln_2", x), INNER)
    return x + net.conv1d(name + ".mlp.c_proj", F.gelu(y, approximate="tanh"), HIDDEN)


def gpt2(seed):
    """Hugging Face's GPT2LMHeadModel; a sample is SEQUENCE words and the one behind them."""
    net = Network(seed)
    text = net.integers(0, WORDS, SAMPLES, SEQUENCE + 1)
    x = net.embedding("transformer.wte", text[:, :-1], WORDS)
    x = x + net.embedding("transformer.wpe", torch.arange(SEQUENCE), POSITIONS)
    for b in range(BLOCKS):
        x = gpt2_block(net, f"transformer.h.{b}", x)
    x = net.layer_norm("transformer.ln_f", x)
    words = F.linear(x, net.parameters["transformer.wte.weight"])
    loss = F.cross_entropy(words.flatten(0, 1), text[:, 1:].flatten(), reduction="sum") / SEQUENCE
    return net, loss, {"tokens": text[:, :-1], "predict_token": text[:, 1:]}


# ---- writing ----

def figures(net, loss, batch):
    parameters = net.parameters
    gradients = torch.autograd.grad(SCALE * loss, list(parameters.values()))
    most = max(g.abs().max() for g in gradients)
    found = {"samples": len(next(iter(batch.values()))), "loss_sum": loss.item(),
             "names": list(parameters)}
    found.update((name, value.flatten().tolist()) for name, value in batch.items())
    for (name, value), gradient in zip(parameters.items(), gradients):
        # what cancels (gradients of the keys' biases) is as exact as what it is a sum of
        step = max(gradient.abs().max(), 1e-2 * most) / GRADIENT_STEPS
        found[name] = (value * UNIT).int().flatten().tolist()
        found[name + ".step"] = step.item()
        found[name + ".grad"] = (gradient / step).round().int().flatten().tolist()
    for name, (mean, variance) in net.running.items():
        found[name + ".running_mean"] = [round(v, 7) for v in mean.tolist()]
        found[name + ".running_var"] = [round(v, 7) for v in variance.tolist()]
    return found


def main():
    networks = {
        "mlp": images(1, mlp, channels=1, size=4),
        "cnn": images(2, cnn, channels=1, size=8),
        "vgg": images(3, vgg, channels=3, size=6),
        "resnet": images(4, resnet, channels=3, size=16),
        "cifar-resnet": images(5, cifar_resnet, channels=3, size=8),
        "bert": bert(6),
        "gpt2": gpt2(7),
    }
    entries = [f'"source": "bench/peers/network_vectors.py, PyTorch {torch.__version__}"',
               f'"unit": {UNIT}', f'"scale": {SCALE}']
    for network, made in networks.items():
        lines = [json.dumps(key) + ":" + json.dumps(value, separators=(",", ":"))
                 for key, value in figures(*made).items()]
        entries.append(json.dumps(network) + ": {\n " + ",\n ".join(lines) + "}")
    print("{" + ",\n".join(entries) + "}")


main()
