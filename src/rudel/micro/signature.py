"""Signatures of .tflite files: what inputs and outputs are called, and in which order.

A file has two orders: the one of its subgraph, in which interpreters number tensors, and the one of its signature, in
which they are named. Converters keep neither that of the Keras model: they sort names, and order outputs as their
operators happen to come. Rudel takes the signature's, and writes files in which both are the model's.
"""

import struct
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rudel.micro.flatbuffer import Flatbuffer, Table
from rudel.micro.graph import Graph

_SUBGRAPHS, _SIGNATURES = 2, 7
_SIDES = ((0, 1), (1, 2))
"""Slots of inputs and outputs: in a signature, and in a subgraph."""


def signed(graph: Graph, model: Table) -> Graph:
    """Returns a graph whose inputs and outputs have the order and the names of the file's first signature.

    A side of the signature that does not name each tensor of that side of the graph once is left aside.
    """
    inputs, outputs = (_named(model, side) for side in _SIDES)
    if sorted(place for _, place in inputs) == sorted(graph.inputs):
        graph = replace(graph, inputs=_places(inputs), input_names=tuple(name for name, _ in inputs))
    if sorted(place for _, place in outputs) == sorted(graph.outputs):
        graph = replace(graph, outputs=_places(outputs), output_names=tuple(name for name, _ in outputs))
    return graph


def in_signature_order(data: bytes) -> bytes:
    """Returns a file whose subgraph, by which interpreters number inputs and outputs, has the signature's order."""
    model = Flatbuffer.of(data).root()
    subgraph, changed = model.tables(_SUBGRAPHS)[0], bytearray(data)
    for side in _SIDES:
        places = _places(_named(model, side))
        start, _ = subgraph.vector(side[1], 4)
        if sorted(places) == sorted(subgraph.integers(side[1])):
            changed[start : start + 4 * len(places)] = np.array(places, "<i4").tobytes()
    return bytes(changed)


def reordered(data: bytes, inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
    """Returns a file whose signature and subgraph have inputs and outputs in another order.

    Args:
        data: a .tflite file with one signature.
        inputs: all names of the signature's inputs, in the order that they shall have.
        outputs: the same of the outputs.
    """
    signature, changed = Flatbuffer.of(data).root().tables(_SIGNATURES)[0], bytearray(data)
    for (slot, _), names in zip(_SIDES, (inputs, outputs), strict=True):
        entries = {entry.text(0): entry.position for entry in signature.tables(slot)}
        start, count = signature.vector(slot, 4)
        assert sorted(entries) == sorted(names)
        places = range(start, start + 4 * count, 4)
        for place, name in zip(places, names, strict=True):  # an entry is an offset from its own place
            struct.pack_into("<I", changed, place, entries[name] - place)
    return in_signature_order(bytes(changed))


def _named(model: Table, side: tuple[int, int]) -> list[tuple[str, int]]:
    """Returns names and tensors of one side of the first signature."""
    signatures = model.tables(_SIGNATURES)
    return [(entry.text(0), entry.integer(1, "I")) for entry in signatures[0].tables(side[0])] if signatures else []


def _places(named: list[tuple[str, int]]) -> tuple[int, ...]:
    return tuple(place for _, place in named)
