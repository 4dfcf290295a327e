#!/usr/bin/python3
"""Optimizer figures for kernels/tests/test_optimizers.c, in float64.

    /usr/bin/python3 bench/peers/optimizer_vectors.py > kernels/tests/data/optimizer_vectors.json

Needs PyTorch (Debian: python3-torch); no part of the build or of the tests does.

Two kinds of source, named in each case:
- "torch.optim.X": PyTorch's own optimizer stepped on a float64 parameter;
- "formula: ...": no such optimizer in PyTorch, so the published update is written out below with
  float64 tensors, independently of the C code.
"""
import json
import sys

import torch

torch.set_default_dtype(torch.float64)

SHAPE = (2, 3)


def start():
    """Values with few digits, of both signs; the second row has no gradient in the first step."""
    param = torch.tensor([[0.5, -1.25, 2.0], [-0.75, 0.0, 3.0]])
    grads = [torch.tensor([[0.25, -0.5, 1.0], [0.0, 0.0, 0.0]]),
             torch.tensor([[-0.5, 0.25, 0.5], [0.25, -1.0, 2.0]]),
             torch.tensor([[1.0, 0.125, -0.25], [0.5, 0.75, 0.0]])]
    return param, grads


def record(param, state, steps):
    """The parameter after every step, the optimizer's state after the last."""
    steps.setdefault("param", []).append(param.flatten().tolist())
    for name, value in state.items():
        steps[name] = [value.flatten().tolist()]


def with_torch(optimizer_class, state_names, **settings):
    param, grads = start()
    param.requires_grad_()
    optimizer = optimizer_class([param], **settings)
    steps = {}
    for grad in grads:
        param.grad = grad.clone()
        optimizer.step()
        state = optimizer.state[param]
        record(param.detach(), {ours: state[theirs] for ours, theirs in state_names.items()}, steps)
    return steps


def lamb(lr, beta1, beta2, eps, weight_decay, adapt):
    """You et al. 2020 (arXiv:1904.00962), algorithm 2, phi(x) = x; ratio 1 where a norm is 0, as in
    NVIDIA's FusedLAMB, without its clipping of the global gradient norm."""
    w, grads = start()
    m, v = torch.zeros_like(w), torch.zeros_like(w)
    steps = {}
    for t, g in enumerate(grads, start=1):
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        u = (m / (1 - beta1**t)) / (torch.sqrt(v / (1 - beta2**t)) + eps) + weight_decay * w
        w_norm, u_norm = torch.linalg.vector_norm(w), torch.linalg.vector_norm(u)
        ratio = w_norm / u_norm if adapt and w_norm > 0 and u_norm > 0 else 1.0
        w = w - lr * ratio * u
        record(w, {"m": m, "v": v}, steps)
    return steps


def lars(lr, momentum, weight_decay, trust, eps, adapt):
    """You et al. 2017 (arXiv:1708.03888), algorithm 1; eps and the ratio 1 where a norm is 0 as in
    MLPerf's reference (mlcommons/training, image_classification/tensorflow2/lars_optimizer.py)."""
    w, grads = start()
    buffer = torch.zeros_like(w)
    steps = {}
    for g in grads:
        w_norm, g_norm = torch.linalg.vector_norm(w), torch.linalg.vector_norm(g)
        ratio = 1.0
        if adapt and w_norm > 0 and g_norm > 0:
            ratio = trust * w_norm / (g_norm + weight_decay * w_norm + eps)
        buffer = momentum * buffer + lr * ratio * (g + weight_decay * w)
        w = w - buffer
        record(w, {"momentum": buffer}, steps)
    return steps


def rowwise_adagrad(lr, eps, weight_decay):
    """FBGEMM's EXACT_ROWWISE_ADAGRAD with its L2 mode, torchrec's RowWiseAdagrad: one sum per row,
    of the mean of the row's squared gradient."""
    w, grads = start()
    state = torch.zeros(w.shape[0], 1)
    steps = {}
    for g in grads:
        g = g + weight_decay * w
        state = state + (g * g).mean(dim=1, keepdim=True)
        w = w - lr * g / (torch.sqrt(state) + eps)
        record(w, {"state": state}, steps)
    return steps


def case(op, source, settings, steps):
    return {"op": op, "source": source, "settings": settings, "results": steps}


def cases():
    made = []
    for momentum, decay in ((0.0, 0.0), (0.9, 0.1)):
        settings = {"lr": 0.05, "momentum": momentum, "weight_decay": decay}
        names = {"momentum": "momentum_buffer"} if momentum else {}
        made.append(case("sgd-momentum", "torch.optim.SGD", settings,
                         with_torch(torch.optim.SGD, names, **settings)))
    for decay in (0.0, 0.1):
        settings = {"lr": 0.01, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": decay}
        made.append(case("adamw", "torch.optim.AdamW", settings,
                         with_torch(torch.optim.AdamW, {"m": "exp_avg", "v": "exp_avg_sq"},
                                    lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=decay)))
    for decay in (0.0, 0.1):
        settings = {"lr": 0.05, "eps": 1e-10, "weight_decay": decay}
        made.append(case("adagrad", "torch.optim.Adagrad", settings,
                         with_torch(torch.optim.Adagrad, {"state": "sum"}, **settings)))
    for adapt, decay in ((True, 0.1), (False, 0.0)):
        settings = {"lr": 0.02, "beta1": 0.9, "beta2": 0.999, "eps": 1e-6, "weight_decay": decay,
                    "adapt": adapt}
        made.append(case("lamb", "formula: You et al. 2020, algorithm 2", settings,
                         lamb(**settings)))
    for adapt, decay, eps in ((True, 0.1, 0.0), (True, 0.1, 0.5), (False, 0.0, 0.0)):
        settings = {"lr": 2.0 if adapt else 0.05, "momentum": 0.9, "weight_decay": decay,
                    "trust": 0.001, "eps": eps, "adapt": adapt}
        made.append(case("lars", "formula: You et al. 2017, algorithm 1", settings,
                         lars(**settings)))
    for decay in (0.0, 0.1):
        settings = {"lr": 0.05, "eps": 1e-10, "weight_decay": decay}
        made.append(case("rowwise-adagrad", "formula: FBGEMM and torchrec", settings,
                         rowwise_adagrad(**settings)))
    return made


def write(out):
    """One array a line, so that a change shows in a diff."""
    param, grads = start()
    out.write('{"made_by": "bench/peers/optimizer_vectors.py", "torch": "%s",\n'
              % torch.__version__)
    out.write(' "rows": %d, "columns": %d,\n' % SHAPE)
    out.write(' "param": %s,\n "grad": [\n' % json.dumps(param.flatten().tolist()))
    out.write(",\n".join("  " + json.dumps(grad.flatten().tolist()) for grad in grads))
    out.write('],\n "cases": [\n')
    texts = []
    for one in cases():
        results = ",\n".join(
            '   "%s": [\n%s]' % (name, ",\n".join("    " + json.dumps(row) for row in rows))
            for name, rows in one["results"].items())
        texts.append('  {"op": "%s", "source": "%s",\n   "settings": %s,\n%s}'
                     % (one["op"], one["source"], json.dumps(one["settings"]), results))
    out.write(",\n".join(texts))
    out.write("]}\n")


if __name__ == "__main__":
    write(sys.stdout)
