"""BERT pre-training, base or large, as dpbench's bert-base and bert-large do it (Hugging Face's BertForPreTraining without
dropout; the word head computes only the hidden words), trained with AdamW. Started by
bench/peers/compare."""
import math

import torch
from torch import nn
import torch.nn.functional as F

import torch_steps

WORDS, POSITIONS = 30522, 512
SIZES = {"base": (12, 12, 768, 3072), "large": (24, 16, 1024, 4096)}
BLOCKS, HEADS, HIDDEN, INNER = SIZES["base"]


def attention(query, key, value):
    query, key, value = (x.unflatten(-1, (HEADS, -1)).transpose(1, 2) for x in (query, key, value))
    if hasattr(F, "scaled_dot_product_attention"):
        y = F.scaled_dot_product_attention(query, key, value)
    else:
        scores = query @ key.transpose(2, 3) / math.sqrt(HIDDEN // HEADS)
        y = F.softmax(scores, dim=-1) @ value
    return y.transpose(1, 2).flatten(2)


def norm():
    return nn.LayerNorm(HIDDEN, eps=1e-12)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.context = (nn.Linear(HIDDEN, HIDDEN)
                                                          for _ in range(4))
        self.attention_norm = norm()
        self.inner, self.output = nn.Linear(HIDDEN, INNER), nn.Linear(INNER, HIDDEN)
        self.output_norm = norm()

    def forward(self, x):
        y = self.context(attention(self.query(x), self.key(x), self.value(x)))
        x = self.attention_norm(x + y)
        return self.output_norm(x + self.output(F.gelu(self.inner(x))))


class Head(nn.Module):
    """The bias is registered first, as Hugging Face's; its weight is the word embedding."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(WORDS))
        self.transform, self.transform_norm = nn.Linear(HIDDEN, HIDDEN), norm()
        self.relation = nn.Linear(HIDDEN, 2)


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, HIDDEN)
        self.positions = nn.Embedding(POSITIONS, HIDDEN)
        self.segments = nn.Embedding(2, HIDDEN)
        self.norm = norm()
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.pooler = nn.Linear(HIDDEN, HIDDEN)
        self.head = Head()

    def forward(self, tokens, segments, hidden_position):
        place = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.norm(self.words(tokens) + self.positions(place) + self.segments(segments))
        x = self.blocks(x)
        head = self.head
        relation = head.relation(torch.tanh(self.pooler(x[:, 0])))
        y = x.gather(1, hidden_position[:, :, None].expand(-1, -1, HIDDEN))
        y = head.transform_norm(F.gelu(head.transform(y)))
        return F.linear(y, self.words.weight, head.bias), relation


def main():
    global BLOCKS, HEADS, HIDDEN, INNER
    args = torch_steps.options({"size": tuple(SIZES)}, sequence=int)
    BLOCKS, HEADS, HIDDEN, INNER = SIZES[args.size]
    start = torch_steps.Start(args)
    network = Bert().to(args.device)
    parameters = list(network.parameters())
    start.set(parameters)
    tokens, segments, position = (start.batch(name).long() for name in
                                  ("tokens", "segments", "predict_position"))
    hidden_words = start.batch("predict_token").long().flatten()
    follows = start.batch("label").long()
    network = torch_steps.distribute(args, network)

    def loss_of():
        words, relation = network(tokens, segments, position)
        return (F.cross_entropy(words.flatten(0, 1), hidden_words) +
                F.cross_entropy(relation, follows))

    update, fused = torch_steps.optimizer(torch.optim.AdamW, parameters, lr=args.lr,
                                          weight_decay=args.weight_decay)
    torch_steps.run(args, parameters, update, fused, loss_of)


main()
