"""PyTorch on several nodes, over gloo: `python cluster_torch.py PART`, the part naming the way by its period.

Period 0 is DistributedDataParallel: gradients are summed in every step. Any other period is local SGD as PyTorch offers
it: `PostLocalSGDOptimizer` with a `PeriodicModelAverager`, without warm-up, the last average after the last step. One
thread, the drawings as uint8 in memory, Adam in its fused form, which is the fastest of its three on CPUs.
"""

# pyright: reportMissingImports=false
# PyTorch is a rival that need not be installed.

import datetime
import importlib.metadata
import itertools
from typing import Any

import cluster_node as node
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer

WARM_UP_STEPS = 8


def net_for(part: node.Part) -> nn.Sequential:
    """The MLP for pixels in 0..1, ending in logits; alike on all workers, and beginning as Keras' does."""
    layers: list[nn.Module] = []
    for before, units in itertools.pairwise((node.PIXELS, *part.hidden)):
        layers += [nn.Linear(before, units), nn.ReLU(), nn.Dropout(node.DROPOUT)]
    net = nn.Sequential(*layers, nn.Linear(part.hidden[-1], part.classes))
    weights = node.initial_weights(part.classes, part.seed, part.hidden)
    for parameter, value in zip(net.parameters(), weights, strict=True):
        parameter.data.copy_(torch.from_numpy(value.T))
    torch.manual_seed(part.seed * 1000 + part.rank)
    return net


def weights_of(net: nn.Module) -> list[Any]:
    """The weights in Keras' layout."""
    return [value.detach().numpy().T for value in net.parameters()]


class Loop:
    """Takes steps, one after the other."""

    def __init__(self, model: nn.Module, optimizer: Any, part: node.Part) -> None:
        pixels, labels = node.share(part)
        self._x, self._y = torch.from_numpy(pixels), torch.from_numpy(labels)
        self._batches = node.Batches(len(labels), part)
        self._model, self._optimizer, self._loss = model, optimizer, nn.CrossEntropyLoss()

    def step(self) -> None:
        """Takes one."""
        chosen = torch.from_numpy(self._batches.next())
        x = torch.index_select(self._x, 0, chosen).float().mul_(1 / 255)
        self._optimizer.zero_grad()
        self._loss(self._model(x), self._y[chosen]).backward()
        self._optimizer.step()


def warmed_up(part: node.Part, period: int) -> None:
    """Lets a net that is thrown away take a few steps, so that connections and memory are there."""
    net = net_for(part)
    model, optimizer = prepared(net, part, period)
    loop = Loop(model, optimizer, part)
    for _ in range(WARM_UP_STEPS):
        loop.step()


def prepared(net: nn.Module, part: node.Part, period: int) -> tuple[nn.Module, Any]:
    """The model to call and the optimizer to step."""
    adam = torch.optim.Adam(net.parameters(), part.learning_rate, fused=True)
    if not period:
        return nn.parallel.DistributedDataParallel(net), adam
    averager = PeriodicModelAverager(period=period, warmup_steps=period - 1)  # averages after steps p, 2p, 3p, ...
    return net, PostLocalSGDOptimizer(adam, averager)


def main() -> None:
    """Trains, tells, keeps what was learned."""
    part = node.read()
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://{part.addresses[0]}",
        rank=part.rank,
        world_size=part.workers,
        timeout=datetime.timedelta(minutes=3),
    )
    warmed_up(part, WARM_UP_STEPS // 2 if part.period else 0)
    net = net_for(part)
    model, optimizer = prepared(net, part, part.period)
    loop, kept = Loop(model, optimizer, part), node.Snapshots()
    node.when_told()
    dist.barrier()
    clock = node.Clock()
    for number in range(1, part.steps + 1):
        loop.step()
        if part.rank == 0 and part.period and number % part.period == 0:
            kept.keep(clock(), weights_of(net))
    if part.period and part.steps % part.period:
        for value in net.parameters():
            dist.all_reduce(value.data, op=dist.ReduceOp.SUM)
            value.data /= part.workers
    seconds = clock()
    node.tell("done", seconds=seconds, versions={"torch": importlib.metadata.version("torch")})
    if part.rank == 0:
        kept.keep(seconds, weights_of(net))
        kept.save()
    dist.barrier()
    node.tell("saved")


if __name__ == "__main__":
    main()
