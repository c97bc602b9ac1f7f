# Rows of a table, gathered and changed in random order, and products of matrices, by PyTorch, on one thread. usage: tensors.py MEBIBYTES
import os
import sys

import torch

torch.manual_seed(1)
torch.set_num_threads(1)
rows = (int(sys.argv[1]) << 20) // 4096
table = torch.arange(rows * 1024, dtype=torch.int32).reshape(rows, 1024)
total = 0
for step in range(600):
    at = torch.randint(0, rows, (64,))
    total = (total * 31 + int(table[at].to(torch.int64).sum())) & 0xFFFFFFFF
    table[at[:16]] += step
layer = torch.nn.Sequential(torch.nn.Linear(1024, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 16))
out = layer(table[: rows // 32].float() / (1 << 26))
out.square().mean().backward()
grads = sum(float(p.grad.double().abs().sum()) for p in layer.parameters())
order = torch.sort(table.flatten()[: rows * 64] * 48271 % 65537).values
print(f"{rows} rows, sum {total}, gradients {grads:.6e}, sorted {int(order[::997].to(torch.int64).sum())}", flush=True)
os._exit(0)
