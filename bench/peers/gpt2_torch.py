"""GPT-2 small as dpbench's gpt2-small does it (Hugging Face's GPT2LMHeadModel without dropout), trained
with AdamW. Started by tests/gpu/check.sh."""
import torch
from torch import nn
import torch.nn.functional as F

import torch_steps

BLOCKS, HEADS, HIDDEN, INNER, WORDS, POSITIONS = 12, 12, 768, 3072, 50257, 1024


class Conv1d(nn.Module):
    """A linear layer whose weight is [inputs, outputs], as Hugging Face's GPT-2 has it."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return torch.addmm(self.bias, x.flatten(0, -2), self.weight).unflatten(0, x.shape[:-1])


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first_norm = nn.LayerNorm(HIDDEN)
        self.attention, self.context = Conv1d(HIDDEN, 3 * HIDDEN), Conv1d(HIDDEN, HIDDEN)
        self.second_norm = nn.LayerNorm(HIDDEN)
        self.inner, self.output = Conv1d(HIDDEN, INNER), Conv1d(INNER, HIDDEN)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
                   for part in self.attention(self.first_norm(x)).split(HIDDEN, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.context(y.transpose(1, 2).flatten(2))
        y = F.gelu(self.inner(self.second_norm(x)), approximate="tanh")
        return x + self.output(y)


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.positions = nn.Embedding(WORDS, HIDDEN), nn.Embedding(POSITIONS, HIDDEN)
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.norm = nn.LayerNorm(HIDDEN)

    def forward(self, tokens):
        place = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.blocks(self.words(tokens) + self.positions(place))
        return F.linear(self.norm(x), self.words.weight)


def main():
    args = torch_steps.options(sequence=int)
    start = torch_steps.Start(args)
    network = Gpt2().to(args.device)
    parameters = list(network.parameters())
    start.set(parameters)
    tokens, following = (start.batch(name).long() for name in ("tokens", "predict_token"))
    update, fused = torch_steps.optimizer(torch.optim.AdamW, parameters, lr=args.lr,
                                          weight_decay=args.weight_decay)
    torch_steps.run(args, parameters, update, fused, lambda: F.cross_entropy(
        network(tokens).flatten(0, 1).float(), following.flatten()))


main()
