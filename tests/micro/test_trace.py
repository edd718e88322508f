"""Estimated cycles are those that are published for small loops and pairs of instructions of a Cortex-M4."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from micro_board import needs_board
from micro_layers import LAYERS, model

from rudel.micro.bench import bench
from rudel.micro.bench.boards import core
from rudel.micro.bench.build import build
from rudel.micro.bench.emulator import run
from rudel.micro.bench.timings import Instruction, block_cycles, instruction, refill
from rudel.micro.bench.trace import build_plugin, estimates, loading, sections

GLUE = """
#include "board.h"
static uint32_t words[64];
const bench_port bench_inputs[] = {{words, sizeof words}}, bench_outputs[] = {{words, 4}};
const uint32_t bench_input_count = 1, bench_output_count = 1;
void bench_reset_model(void) {}
__attribute__((noinline)) void mark(int section) { __asm__ volatile("" : : "r"(section)); }
"""
LOOP = """
__attribute__((noinline)) static void NAME(uint32_t n) {
    __asm__ volatile("movs r2, #0\\n .balign 16\\n" "%s"
        : "+r"(n) : "r"(words) : "r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "cc", "memory");
}
"""

LOOPS = {
    # nrfx_coredep_delay_us() in Nordic's nrfx, soc/nrfx_coredep.h, for the nRF52832: "3 cycles: 1 for SUBS, 2 for BHI".
    "nrfx's delay": (r"1: subs %0, #1\n bhi 1b\n", 3),
    # wait_us() in hwlib (github.com/wovo/hwlib), hwlib-due.hpp: "the loop uses exactly 12 cycles on an M3".
    "hwlib's delay": (r"1: subs %0, #1\n b 2f\n 2: b 3f\n 3: b 4f\n 4: b 5f\n 5: nop\n bgt 1b\n", 12),
    # The second and fourth pair of section 3.3.2 of Arm DDI 0439D, 3 and 4 cycles, and a loop of 3.
    "a load and a store": (r"1: ldr r0, [%1, r2]\n str r0, [%1, #20]\n subs %0, #1\n bne 1b\n", 6),
    "three loads": (r"1: ldr r0, [%1, r2]\n ldr r3, [%1]\n ldr r4, [%1, #4]\n subs %0, #1\n bne 1b\n", 7),
    # The same section: a store of eight takes nine cycles; a halfword aligned word takes one more, a byte aligned two.
    "a store of eight": (r"1: stm %1, {r0, r1, r2, r3, r4, r5, r6, r7}\n subs %0, #1\n bne 1b\n", 12),
    "a word at a half": (r"1: ldr r0, [%1, #2]\n subs %0, #1\n bne 1b\n", 6),
    "a word at a byte": (r"1: ldr r0, [%1, #1]\n subs %0, #1\n bne 1b\n", 7),
}


@pytest.fixture(scope="module")
def loops_image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image that has run every loop 10 and 1010 times, twice over, with marks between."""
    needs_board()
    place = core("cortex-m4")
    text, calls = GLUE, ["mark(0);"]
    for number, (loop, _) in enumerate(LOOPS.values()):
        text += LOOP.replace("NAME", f"loop{number}").replace("%s", loop.replace("\n", "\\n"))
        calls += [f"loop{number}({count}); mark({number});" for count in (10, 1010)]
    text += f"void bench_invoke(void) {{ {' '.join(calls)} loop0(1); }}"
    image = build(tmp_path_factory.mktemp("loops"), place, {"model.c": text})
    plugin = loading(build_plugin(image.parent), image, "bench_invoke", "mark")
    _, records = run(image, place.board, [bytes(256)] * 2, plugin=plugin)
    assert len(records) == 2
    return image


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_takes_the_cycles_that_are_published(name: str, loops_image: Path) -> None:
    first, again = estimates(loops_image)
    assert first == again
    number = 2 * list(LOOPS).index(name)
    assert (first[number + 2] - first[number + 1]) / 1000 == LOOPS[name][1]


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        # Arm DDI 0439D, section 3.3.2.
        (["ldr r0, [r1, #0]", "ldr r1, [r2, #0]"], 3),
        (["ldr r0, [r1, r2]", "str r0, [r3, #20]"], 3),
        (["ldr r0, [r1, r2]", "str r1, [r3, r2]"], 3),
        (["ldr r0, [r1, r5]", "ldr r1, [r2, #0]", "ldr r2, [r3, #4]"], 4),
        (["ldr.w r0, [r1], #4", "ldr r2, [r0, #0]"], 4),
        (["str r0, [r1, r2]", "ldr r3, [r4, #0]"], 4),
        (["ldrd r0, r1, [r2]"], 3),
        (["ldmia.w r0!, {r1, r2, r3}"], 4),
        (["adds r0, #4", "ldr r1, [r0, #0]"], 4),
        (["adds r0, #4", "ldr r1, [r2, #0]"], 3),
        # Section 3.3.1.
        (["smlad r0, r1, r2, r0", "smlal r0, r1, r2, r3", "mla r0, r1, r2, r3"], 3),
        (["push {r4, r5, lr}", "udiv r0, r1, r2", "cmp r0, r1", "bls.n 10 <x>"], 4 + 12 + 1 + 1),
        # Section 7.2.3.
        (["vldr s0, [r0, #4]", "vmul.f32 s1, s0, s0", "vadd.f32 s2, s1, s0", "vdiv.f32 s3, s4, s5"], 2 + 1 + 2 + 14),
        (["vmul.f32 s1, s0, s0", "vmla.f32 s1, s2, s3", "vmla.f32 s4, s1, s3"], 1 + 3 + 4),
        (["vpush {d8-d10}", "vldmia r0!, {s1-s3}", "vmov r0, s1", "vmov.f32 s1, s2"], 7 + 4 + 2 + 1),
    ],
)
def test_blocks_take_the_cycles_of_the_manual(block: Sequence[str], expected: int) -> None:
    assert block_cycles([_read(line) for line in block]) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # Section 3.3.1 gives 1 to 3, section 3.3.2 gives 3 where the address is loaded, and the loops above 1.
        *(("bl 10 <x>", 1), ("bne.n 10 <x>", 1), ("bx lr", 1), ("bx r3", 2), ("blx r3", 2), ("cbz r0, 10 <x>", 2)),
        *(("pop {r4, pc}", 3), ("ldr.w pc, [r0]", 3), ("tbb [pc, r0]", 3), ("ldmia.w sp!, {r4, pc}", 3)),
    ],
)
def test_a_taken_branch_refills_the_pipeline(line: str, expected: int) -> None:
    assert refill(_read(line)) == expected


def _read(line: str) -> Instruction:
    return instruction(*line.split(" ", 1))


def test_the_blocks_are_all_instructions_but_those_of_the_marks(tmp_path: Path) -> None:
    needs_board()
    place = core("cortex-m4")
    text = GLUE + LOOP.replace("NAME", "loop").replace("%s", LOOPS["hwlib's delay"][0].replace("\n", "\\n"))
    text += "void bench_invoke(void) { loop(1000); MARK loop(500); }"
    plugin = build_plugin(tmp_path)
    image = build(tmp_path, place, {"model.c": text}, macros=["MARK="])
    _, (record,) = run(image, place.board, [bytes(256)], plugin=loading(plugin, image, "bench_invoke"))
    ((whole,),) = sections(image)
    assert record.instructions - 2 <= whole.instructions <= record.instructions
    image = build(tmp_path, place, {"model.c": text}, macros=["MARK=mark(0);"])
    run(image, place.board, [bytes(256)], plugin=loading(plugin, image, "bench_invoke", "mark"))
    ((first, last),) = sections(image)
    assert first.marked
    assert not last.marked
    assert first.instructions + last.instructions == whole.instructions


def test_a_model_has_an_estimate_for_every_layer_and_for_all() -> None:
    needs_board()
    measured = bench(model(LAYERS["few channels"]), name="few", count=2)
    (layer,) = measured.layers
    assert measured.estimated_cycles is not None
    assert layer.estimated_cycles is not None
    assert measured.instructions < measured.estimated_cycles < 3 * measured.instructions
    assert layer.estimated_cycles == pytest.approx(measured.estimated_cycles, rel=0.1)
