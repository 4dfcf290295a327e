"""BERT-base pre-training as dpbench's bert-base does it (Hugging Face's BertForPreTraining without
dropout; the word head computes only the hidden words), trained with AdamW. Started by
bench/peers/compare."""
import math

import torch
from torch import nn
import torch.nn.functional as F

import torch_steps

BLOCKS, HEADS, HIDDEN, INNER, WORDS, POSITIONS = 12, 12, 768, 3072, 30522, 512


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
        self.inner, self.output = nn.Linear(HIDDEN, INNER), nn.Linear(INNER, HIDDEN)
        self.attention_norm, self.output_norm = norm(), norm()

    def forward(self, x):
        y = self.context(attention(self.query(x), self.key(x), self.value(x)))
        x = self.attention_norm(x + y)
        return self.output_norm(x + self.output(F.gelu(self.inner(x))))


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, HIDDEN)
        self.positions = nn.Embedding(POSITIONS, HIDDEN)
        self.segments = nn.Embedding(2, HIDDEN)
        self.norm = norm()
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.pooler, self.relation = nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, 2)
        self.transform, self.transform_norm = nn.Linear(HIDDEN, HIDDEN), norm()
        self.decoder_bias = nn.Parameter(torch.zeros(WORDS))  # its weight is the word embedding
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens, segments, hidden_position):
        place = torch.arange(tokens.shape[1])
        x = self.norm(self.words(tokens) + self.positions(place) + self.segments(segments))
        x = self.blocks(x)
        relation = self.relation(torch.tanh(self.pooler(x[:, 0])))
        y = x.gather(1, hidden_position[:, :, None].expand(-1, -1, HIDDEN))
        y = self.transform_norm(F.gelu(self.transform(y)))
        return F.linear(y, self.words.weight, self.decoder_bias), relation


def main():
    args = torch_steps.options(sequence=int)
    torch.manual_seed(1)
    network = Bert()
    hidden = args.sequence * 5 // 32
    tokens = torch.randint(0, WORDS, (args.batch, args.sequence))
    segments = (torch.arange(args.sequence) >= args.sequence // 2).long().expand(args.batch, -1)
    position = torch.rand(args.batch, args.sequence).argsort(dim=1)[:, :hidden]
    hidden_words = torch.randint(0, WORDS, (args.batch * hidden,))
    follows = torch.randint(0, 2, (args.batch,))

    def loss_of():
        words, relation = network(tokens, segments, position)
        return (F.cross_entropy(words.flatten(0, 1), hidden_words) +
                F.cross_entropy(relation, follows))

    parameters = list(network.parameters())
    update, fused = torch_steps.optimizer(torch.optim.AdamW, parameters, lr=args.lr,
                                          weight_decay=args.weight_decay)
    torch_steps.run(args, parameters, update, fused, loss_of)


main()
