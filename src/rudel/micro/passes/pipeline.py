"""All passes, in the order in which they run."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rudel.micro.emit import Context
from rudel.micro.graph import Graph
from rudel.micro.passes.constant_channels import remove_constant_channels
from rudel.micro.passes.folding import fold_constants
from rudel.micro.passes.lookups import join_lookups, tabulate
from rudel.micro.passes.multiplied_channels import convolve_multiplied_channels
from rudel.micro.passes.own_outputs import own_outputs
from rudel.micro.passes.pads import fuse_pads
from rudel.micro.passes.slices import slice_parts
from rudel.micro.passes.unused import drop_unused


@dataclass(frozen=True)
class Pass:
    """One pass.

    Attributes:
        does: what it does, for people.
        run: the pass.
    """

    does: str
    run: Callable[[Graph, Context], Graph]


PASSES = (
    Pass("take parts of tensors as slices", lambda graph, _: slice_parts(graph)),
    Pass("compute what does not depend on the input", lambda graph, _: fold_constants(graph)),
    Pass("drop what no output needs", lambda graph, _: drop_unused(graph)),
    Pass("give every output its own memory", lambda graph, _: own_outputs(graph)),
    Pass("make factors of channels a convolution", lambda graph, _: convolve_multiplied_channels(graph)),
    Pass("look functions of one number up in tables", tabulate),
    Pass("join tables that follow each other", lambda graph, _: join_lookups(graph)),
    Pass("pad inside the kernels", lambda graph, _: fuse_pads(graph)),
    Pass("remove channels that are constant or unused", remove_constant_channels),
)


def stages(graph: Graph, context: Context) -> Iterator[tuple[Pass, Graph]]:
    """Each pass with the graph that it makes of the one before."""
    for each in PASSES:
        graph = each.run(graph, context)
        yield each, graph


def optimised(graph: Graph, context: Context) -> Graph:
    """Returns a graph that computes the same bits with less."""
    *_, (_, last) = stages(graph, context)
    return last
