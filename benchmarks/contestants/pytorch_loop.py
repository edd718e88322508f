"""A plain PyTorch loop: all data in one tensor, a permutation an epoch, batches by indexing, Adam.

The MLP is written out; the recipe's CNN is translated layer by layer, without its weights (see `torch_net`). With one
thread or with all, whichever took less time in the warm-up. There is nothing to compile: `compile_seconds` is what the
warm-up took longer than its steps would have at the later pace.
"""

# pyright: reportMissingImports=false
# PyTorch is a rival that need not be installed.

import time
from typing import Any

import job
import torch
import torch_net
from torch import nn

from rudel.data.dataset import Dataset, Examples


def article_net(classes: int) -> nn.Module:
    """The article's net, for pixels in 0..1, ending in logits."""
    return nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, classes))


def prepared(given: job.Job, dataset: Dataset) -> nn.Module:
    """The net that is asked for."""
    if given.net == "mlp":
        return article_net(len(given.classes))
    return torch_net.translated(job.recipe_model(given, dataset))


def as_tensors(examples: Examples) -> tuple[torch.Tensor, torch.Tensor]:
    """Pixels as float32 in 0..1, labels as int64."""
    return torch.from_numpy(job.as_floats(examples.x)), torch.from_numpy(examples.y).long()


class Loop:
    """Takes steps, epoch after epoch, as many as are asked for."""

    def __init__(self, net: nn.Module, x: torch.Tensor, y: torch.Tensor, size: int) -> None:
        self._net, self._x, self._y, self._size = net, x, y, size
        self._adam = torch.optim.Adam(net.parameters(), 1e-3)
        self._loss = nn.CrossEntropyLoss()
        self._order = torch.empty(0, dtype=torch.long)
        self._at = 0

    def seconds_for(self, steps: int) -> float:
        """Takes steps; says how long that took."""
        self._net.train()
        began = time.perf_counter()
        for _ in range(steps):
            chosen = self._next()
            self._adam.zero_grad()
            self._loss(self._net(self._x[chosen]), self._y[chosen]).backward()
            self._adam.step()
        return time.perf_counter() - began

    def _next(self) -> torch.Tensor:
        if self._at + self._size > len(self._order):
            self._order, self._at = torch.randperm(len(self._x)), 0
        self._at += self._size
        return self._order[self._at - self._size : self._at]


@torch.no_grad()
def accuracy(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """Share of examples that the net gets right."""
    net.eval()
    right = sum(int((net(a).argmax(1) == b).sum()) for a, b in zip(x.split(256), y.split(256), strict=True))
    return right / len(y)


def main() -> None:
    """Trains, evaluates, prints."""
    given = job.read()
    torch.manual_seed(given.seed)
    dataset = job.drawings(given)
    assert dataset.validation
    try:
        net = prepared(given, dataset)
    except torch_net.NotTranslatedError as error:
        job.leave_out(f"the recipe's net has {error}, which is not translated to PyTorch")
        return
    (x, y), held_out = as_tensors(dataset.train), as_tensors(dataset.validation)
    loop = Loop(net, x, y, given.batch_size)

    warm_up_seconds, threads, warm_up = warmed_up(loop, given.warm_up)
    torch.set_num_threads(threads)
    steps = given.steps - warm_up
    step_seconds = loop.seconds_for(steps) / steps
    job.answer(
        ["torch", "numpy"],
        steps=given.steps,
        step_seconds=step_seconds,
        compile_seconds=max(0.0, warm_up_seconds - warm_up * step_seconds),
        accuracy=accuracy(net, *held_out),
        threads=threads,
    )


def warmed_up(loop: Loop, steps: int) -> tuple[float, int, int]:
    """Takes about so many steps: returns the seconds, the best number of threads, and the steps taken."""
    part = max(1, steps // 4)
    trials: dict[int, Any] = {}
    began = time.perf_counter()
    taken = 0
    for threads in sorted({1, torch.get_num_threads()}):
        torch.set_num_threads(threads)
        loop.seconds_for(part)
        trials[threads] = loop.seconds_for(part)
        taken += 2 * part
    return time.perf_counter() - began, min(trials, key=lambda tried: trials[tried]), taken


if __name__ == "__main__":
    main()
