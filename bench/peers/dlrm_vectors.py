#!/usr/bin/python3
"""Loss and gradients of a tiny recommendation model, and its tables after steps with sparse
gradients, for bench/tests/test_dlrm.c and test_dlrm_tables.c, in float64.

    /usr/bin/python3 bench/peers/dlrm_vectors.py > bench/tests/data/dlrm_tiny.json

Needs PyTorch (Debian: python3-torch, made with 1.13.1); no part of the build or of the tests does.

The model is put together as facebookresearch/dlrm does it (DLRM_Net: emb_l, bot_l, top_l; sums of
bags of one row; interact_features() without itself). Its parameters are float32 numbers, so that
both sides compute from the same values. torch.autograd.gradcheck holds the gradients against
differences of the loss before they are written.
"""
import copy
import json

import torch
from torch import nn

FEATURES, TABLES, ROWS, LENGTH, SAMPLES = 3, 3, 5, 4, 6
BOTTOM, TOP = [FEATURES, 6, LENGTH], [LENGTH + (TABLES + 1) * TABLES // 2, 7, 1]
SCALE = 0.5  # of the sum over the samples
STEPS, LR, EPS = 3, 0.25, 1e-10  # of the steps that update tables


def mlp(widths, last):
    layers = []
    for i, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
        layers += [nn.Linear(inputs, outputs), last if i == len(widths) - 2 else nn.ReLU()]
    return nn.Sequential(*layers)


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb_l = nn.ModuleList(nn.EmbeddingBag(ROWS, LENGTH, mode="sum") for _ in range(TABLES))
        self.bot_l = mlp(BOTTOM, nn.ReLU())
        self.top_l = mlp(TOP, nn.Identity())

    def forward(self, dense, indices):
        x = self.bot_l(dense)
        rows = [table(indices[:, t:t + 1]) for t, table in enumerate(self.emb_l)]
        vectors = torch.stack([x] + rows, dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        below = torch.tril_indices(TABLES + 1, TABLES + 1, offset=-1)
        return self.top_l(torch.cat([x, products[:, below[0], below[1]]], dim=1))[:, 0]


def sparse_steps(model, make_optimizer, dense, indices, label):
    """The losses of STEPS steps in which only the tables learn, from sparse gradients of EmbeddingBag,
    and the tables after them. Rows occur several times in the batch."""
    model = copy.deepcopy(model)
    for table in model.emb_l:
        table.sparse = True
    for parameter in model.parameters():
        parameter.grad = None
    optimizer = make_optimizer([table.weight for table in model.emb_l])
    losses = []
    for _ in range(STEPS):
        loss = nn.functional.binary_cross_entropy_with_logits(
            model(dense, indices), label.double(), reduction="sum")
        optimizer.zero_grad()
        (SCALE * loss).backward()
        assert all(table.weight.grad.is_sparse for table in model.emb_l)
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses,
            "tables": [value for table in model.emb_l for value in table.weight.flatten().tolist()]}


class RowWiseAdagrad:
    """torchrec's, which Debian does not have: one sum per row, of the means of squares."""

    def __init__(self, tables):
        self.tables = tables
        self.sums = [torch.zeros(len(table), 1).double() for table in tables]

    def zero_grad(self):
        for table in self.tables:
            table.grad = None

    @torch.no_grad()
    def step(self):
        for table, sums in zip(self.tables, self.sums):
            gradient = table.grad.coalesce()
            rows, values = gradient.indices()[0], gradient.values()
            sums[rows] += (values ** 2).mean(dim=1, keepdim=True)
            table[rows] -= LR * values / (sums[rows].sqrt() + EPS)


def main():
    torch.manual_seed(20)
    model = Tiny()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.rand(parameter.shape) * 1.6 - 0.7)
    dense = torch.rand(SAMPLES, FEATURES) * 2 - 1
    indices = torch.randint(0, ROWS, (SAMPLES, TABLES))
    label = torch.tensor([0, 1, 1, 0, 1, 0])
    model, dense = model.double(), dense.double()
    order = []
    held = []  # the accumulators must live until the hooks have run
    for name, parameter in model.named_parameters():
        accumulator = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
        accumulator.register_hook(lambda *_, name=name: order.append(name))
        held.append(accumulator)

    losses = nn.functional.binary_cross_entropy_with_logits(
        model(dense, indices), label.double(), reduction="none")
    (SCALE * losses.sum()).backward()

    names = [name for name, _ in model.named_parameters()]
    values = [p.detach().clone().requires_grad_() for p in model.parameters()]

    def loss_of(*parameters):
        logits = torch.nn.utils.stateless.functional_call(
            model, dict(zip(names, parameters)), (dense, indices))
        return SCALE * nn.functional.binary_cross_entropy_with_logits(
            logits, label.double(), reduction="sum")

    assert torch.autograd.gradcheck(loss_of, values)
    figures = {
        "source": "bench/peers/dlrm_vectors.py, PyTorch " + torch.__version__,
        "scale": SCALE,
        "x": dense.flatten().tolist(),
        "indices": indices.flatten().tolist(),
        "label": label.tolist(),
        "loss_sum": losses.sum().item(),
        "ready_order": [names.index(name) for name in order],
        "names": names,
    }
    for name, p in model.named_parameters():
        figures[name] = p.flatten().tolist()
        figures[name + ".grad"] = p.grad.flatten().tolist()
    figures["sparse"] = {"lr": LR, "eps": EPS} | {
        name: sparse_steps(model, make, dense, indices, label)
        for name, make in (("sgd", lambda tables: torch.optim.SGD(tables, lr=LR)),
                           ("adagrad", lambda tables: torch.optim.Adagrad(tables, lr=LR, eps=EPS)),
                           ("rowwise-adagrad", RowWiseAdagrad))}
    lines = [json.dumps(key) + ": " + json.dumps(value) for key, value in figures.items()]
    print("{" + ",\n ".join(lines) + "}")


main()
