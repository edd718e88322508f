"""The page of a compiled model: layers, cycles, the arena, what passes removed, and nothing from outside."""

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from micro_board import needs_board
from micro_layers import LAYERS, model
from micro_support.models import Op, T, build

from rudel.errors import CompileError
from rudel.micro.bench import bench
from rudel.micro.compiler import compile_model
from rudel.micro.explain_page import explanation, write_page
from rudel.micro.removed import Totals, removals


def _dead_channels() -> bytes:
    """Two convolutions of 8 channels, of which 5 of the first are constant."""
    weights = np.random.default_rng(1).integers(-127, 128, (8, 1, 1, 8)).astype(np.int8)
    dead = weights.copy()
    dead[[1, 2, 4, 6, 7]] = 0
    window = {"stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1, "padding": "SAME"}
    one = {"scale": np.full(8, 0.01), "axis": 0}
    zeros = np.zeros(8, np.int32)
    tensors = [
        T((1, 4, 4, 8), scale=0.1),
        T((8, 1, 1, 8), data=dead, **one),
        T((8,), "int32", scale=0.001, data=zeros),
        T((1, 4, 4, 8), scale=0.1),
        T((8, 1, 1, 8), data=weights, **one),
        T((8,), "int32", scale=0.001, data=zeros),
        T((1, 4, 4, 8), scale=0.1),
    ]
    operators = [Op("CONV_2D", (0, 1, 2), (3,), window), Op("CONV_2D", (3, 4, 5), (6,), window)]
    return build(tensors, operators, [0], [6])


def _read(page: str) -> ElementTree.Element:
    assert page.startswith("<!DOCTYPE html>\n")
    return ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>"))


def _texts(root: ElementTree.Element, tag: str) -> list[str]:
    return ["".join(part.itertext()) for part in root.iter(tag)]


def test_the_page_shows_estimated_cycles_by_layer_and_needs_nothing_from_outside() -> None:
    needs_board()
    source = model(LAYERS["few channels"])
    compiled = compile_model(source, name="few", target="cortex-m4")
    measured = bench(source, name="few", count=1)
    page = explanation(compiled, removals(source, target="cortex-m4"), measured, None)
    root = _read(page)
    assert f"{measured.estimated_cycles:,}" in _texts(root, "strong")
    assert "estimated cycles" in _texts(root, "th")
    assert f"{measured.layers[0].estimated_cycles:,}" in _texts(root, "td")
    assert "Cycles are an estimate" in page
    assert re.findall(r"(?:src|href)=\"(?!data:|#)", page) == []
    assert "<script" not in page
    assert "url(" not in page
    assert len(list(root.iter("rect"))) == len(compiled.memory.buffers)


def test_without_a_board_the_page_has_multiplications_and_the_reason() -> None:
    source = model(LAYERS["few channels"])
    compiled = compile_model(source, name="few")
    page = explanation(compiled, [], None, "There is <no> board.")
    root = _read(page)
    assert "There is <no> board." in " ".join(_texts(root, "p"))
    assert "estimated" not in page.replace("Cycles are an estimate", "")
    assert f"{compiled.macs:,}" in _texts(root, "td")
    assert "no pass found anything" in page


def test_what_a_pass_removed_is_said_by_layer() -> None:
    source = _dead_channels()
    (removal,) = removals(source)
    assert removal.does == "remove channels that are constant or unused"
    assert removal.changes == ("CONV_2D 0: 8 to 4 channels",)
    assert removal.before == Totals(2, 2 * 4 * 4 * 8 * 8, 2 * (8 * 8 + 8 * 4))
    assert removal.after == Totals(2, 4 * 4 * 8 * 8, 4 * 8 + 4 * 4 + 8 * 4 + 8 * 4)
    page = explanation(compile_model(source, name="dead"), [removal], None, None)
    assert "2,048 → 1,024" in page
    assert "CONV_2D 0: 8 to 4 channels" in page


def test_a_page_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    compiled = compile_model(model(LAYERS["few channels"]), name="few")
    with pytest.raises(CompileError, match=r"^`.*gone/page.html` cannot be written: .*\.$"):
        write_page(tmp_path / "gone" / "page.html", compiled, [], None, None)
