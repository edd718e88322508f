"""All passes, in the order in which they run."""

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


def optimised(graph: Graph, context: Context) -> Graph:
    """Returns a graph that computes the same bits with less."""
    graph = own_outputs(drop_unused(fold_constants(slice_parts(graph))))
    graph = convolve_multiplied_channels(graph)
    graph = join_lookups(tabulate(graph, context))
    graph = fuse_pads(graph)
    return remove_constant_channels(graph, context)
