"""DLRM as dpbench's dlrm-small does it (facebookresearch/dlrm for Criteo Kaggle: 26 tables, dense
gradients), trained with SGD. Started by tests/gpu/check.sh."""
import torch
from torch import nn
import torch.nn.functional as F

import torch_steps

FEATURES, TABLES, LENGTH = 13, 26, 16
BOTTOM, TOP = (FEATURES, 512, 256, 64, LENGTH), (LENGTH + (TABLES + 1) * TABLES // 2, 512, 256, 1)


def mlp(widths, last):
    layers = []
    for i, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
        layers += [nn.Linear(inputs, outputs), last if i == len(widths) - 2 else nn.ReLU()]
    return nn.Sequential(*layers)


class Dlrm(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, LENGTH, mode="sum") for _ in range(TABLES))
        self.bottom, self.top = mlp(BOTTOM, nn.ReLU()), mlp(TOP, nn.Identity())
        self.register_buffer("below", torch.tril_indices(TABLES + 1, TABLES + 1, offset=-1),
                             persistent=False)

    def forward(self, dense, indices):
        x = self.bottom(dense)
        rows = [table(indices[:, t:t + 1]) for t, table in enumerate(self.tables)]
        vectors = torch.stack([x] + [row.to(x.dtype) for row in rows], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        return self.top(torch.cat([x, products[:, self.below[0], self.below[1]]], dim=1))[:, 0]


def main():
    args = torch_steps.options(**{"table-rows": int})
    start = torch_steps.Start(args)
    network = Dlrm(args.table_rows).to(args.device)
    parameters = list(network.parameters())
    start.set(parameters)
    dense, indices = start.batch("x"), start.batch("indices").long()
    label = start.batch("label").float()
    update, fused = torch_steps.optimizer(torch.optim.SGD, parameters, lr=args.lr,
                                          weight_decay=args.weight_decay)
    torch_steps.run(args, parameters, update, fused, lambda: F.binary_cross_entropy_with_logits(
        network(dense, indices).float(), label))


main()
