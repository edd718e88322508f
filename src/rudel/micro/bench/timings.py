"""Cycles of a Cortex-M4's instructions by Arm's published timings.

Source: Cortex-M4 Technical Reference Manual, Arm DDI 0439D, sections 3.3.1 (instructions), 3.3.2 (loads and stores) and
7.2.3 (floating point), for memory without wait states. Where the manual gives a range, or says that something can be:

- Refilling the pipeline, 1 to 3 cycles, takes 1 for branches to an address in the instruction or in LR, which is known
  early; 2 for other registers and CBZ; 3 where the address is loaded; 1 more for a 32-bit target that is not aligned.
- Division, 2 to 12 cycles, takes 12. VDIV and VSQRT are never hidden behind other instructions.
- IT is never folded into the instruction before it.
- Contention for the bus, and 32-bit loads that are not aligned and so not pipelined, are left out.
- An instruction that its condition skips counts as if it ran.

How far that is from silicon: a multiplication of polynomials that was counted like this to 609 cycles took 628 on an
STM32F407 without wait states (T. Pornin, github.com/pornin/curve9767, src/ops_cm4.s).
"""

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rudel.micro.bench.tools import program

_LINE = re.compile(r"\s*([0-9a-f]+):\t([0-9a-f]{4}(?: [0-9a-f]{4})?) +\t(\S+)(?:\t([^@;\n]*))?")
_REGISTER = re.compile(r"r\d+|sl|fp|ip|sp|lr|pc")
_IF = "(?:eq|ne|cs|hs|cc|lo|mi|pl|vs|vc|hi|ls|ge|lt|gt|le)?"
_BRANCH = re.compile(rf"(?:b|bl|bx|blx){_IF}|cbn?z|tb[bh]")
_LOAD = re.compile(rf"ldr(?:b|h|sb|sh)?{_IF}")
_STORE = re.compile(rf"str(?:b|h)?{_IF}")
_PAIR = re.compile(rf"(?:ldrd|strd){_IF}")
_LIST = re.compile(rf"v?(?:(?:ldm|stm)(?:ia|db)|push|pop){_IF}")
_DIVISION = re.compile(rf"[us]div{_IF}")
_FLOAT_SUM = re.compile(r"v(?:n?ml[as]|fn?m[as])")
_FLOAT_ARITHMETIC = re.compile(rf"v(?:add|sub|n?mul|div|sqrt|cvt)|{_FLOAT_SUM.pattern}")
_WITHOUT_RESULT = re.compile(r"cm[pn]|t(?:st|eq)|nop|it|[di][sm]b|bkpt|v")
_TWO_RESULTS = re.compile(r"[us]m(?:ul|la|ls)l|umaal")


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes:
        name: its mnemonic without width and types, such as `ldr` or `vadd`.
        operands: as the disassembler writes them.
    """

    name: str
    operands: tuple[str, ...] = ()

    @property
    def addresses(self) -> set[str]:
        """Registers from which it computes an address."""
        if _LIST.fullmatch(self.name):
            return {self.operands[0].rstrip("!")} if len(self.operands) == 2 else {"sp"}
        memory = next((operand for operand in self.operands if operand.startswith("[")), "")
        return set(_REGISTER.findall(memory))

    @property
    def results(self) -> set[str]:
        """Registers that it writes if it processes data in the core."""
        if any(kind.match(self.name) for kind in (_WITHOUT_RESULT, _LOAD, _STORE, _PAIR, _LIST)) or self.branches:
            return set()
        return set(self.operands[: 2 if _TWO_RESULTS.match(self.name) else 1])

    @property
    def indexed(self) -> bool:
        """Whether it adds a register to an address."""
        return any(re.match(r"\[\w+, [^#]", operand) for operand in self.operands)

    @property
    def branches(self) -> bool:
        """Whether it does nothing but branch."""
        return _BRANCH.fullmatch(self.name) is not None

    @property
    def always_branches(self) -> bool:
        """Whether it branches whatever the flags and registers are."""
        if self.name in ("b", "bl", "bx", "blx", "tbb", "tbh"):
            return True
        if self.name in ("pop", "ldmia"):
            return self.operands[-1].endswith("pc}")
        return self.name in ("ldr", "mov", "add") and self.operands[0] == "pc"


def disassembled(image: Path) -> dict[int, Instruction]:
    """The instructions of an image, by their addresses, in order.

    Raises:
        BenchError: there is no disassembler.
    """
    command = [program("arm-none-eabi-objdump"), "-d", str(image)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = (_LINE.match(line) for line in text.splitlines())
    return {int(line[1], 16): instruction(line[3], line[4] or "") for line in lines if line}


def instruction(mnemonic: str, operands: str = "") -> Instruction:
    """Reads an instruction as the disassembler writes it.

    >>> instruction("ldr.w", "r0, [r1, r2, lsl #2]")
    Instruction(name='ldr', operands=('r0', '[r1, r2, lsl #2]'))
    """
    parts = re.findall(r"(?:\[[^\]]*\]|\{[^}]*\}|[^,\[{])+", operands)
    return Instruction(mnemonic.split(".")[0], tuple(part.strip() for part in parts))


def block_cycles(block: Sequence[Instruction]) -> int:
    """Cycles of instructions that run one after the other, without those of a taken branch at the end."""
    return sum(_cycles(now, before) for before, now in zip((None, *block), block, strict=False))


def refill(branch: Instruction) -> int:
    """Cycles to refill the pipeline after a branch that is taken, to an aligned target."""
    if branch.name.startswith(("ldr", "ldm", "pop", "tb")):
        return 3
    target = branch.operands[0]
    return 2 if target != "lr" and _REGISTER.fullmatch(target) else 1


def _cycles(now: Instruction, before: Instruction | None) -> int:
    name = now.name
    if _LOAD.fullmatch(name) or _STORE.fullmatch(name):
        return _access_cycles(now, before) + _address_wait(now, before)
    if _PAIR.fullmatch(name) or name.startswith("tb"):
        return 3 + _address_wait(now, before)
    if _LIST.fullmatch(name):
        return 1 + _registers(now.operands[-1]) + _address_wait(now, before)
    if _DIVISION.fullmatch(name):
        return 12
    return _float_cycles(now) + _float_wait(now, before) if name.startswith("v") else 1


def _access_cycles(now: Instruction, before: Instruction | None) -> int:
    """Cycles of a load or a store; one is hidden behind a load before it that does not give the address."""
    if _STORE.fullmatch(now.name) and not now.indexed:
        return 1
    pipelined = before is not None and _LOAD.fullmatch(before.name) and before.operands[0] not in now.addresses
    return 1 if pipelined else 2


def _address_wait(now: Instruction, before: Instruction | None) -> int:
    """The cycle that an address waits for the result of the data processing before it."""
    return 1 if before is not None and before.results & now.addresses else 0


def _float_cycles(now: Instruction) -> int:
    if _LOAD.fullmatch(now.name[1:]) or _STORE.fullmatch(now.name[1:]):
        return 3 if now.operands[0].startswith("d") else 2
    if now.name.startswith(("vdiv", "vsqrt")):
        return 14
    if _FLOAT_SUM.match(now.name):
        return 3
    return 2 if now.name.startswith("vmov") and any(map(_REGISTER.fullmatch, now.operands)) else 1


def _float_wait(now: Instruction, before: Instruction | None) -> int:
    """The cycle more of floating-point arithmetic whose result the next instruction needs, other than as addend."""
    if before is None or not _FLOAT_ARITHMETIC.match(before.name):
        return 0
    needed = now.operands if now.name.startswith(("vstr", "vcmp", "vmov")) else now.operands[1:]
    return 1 if before.operands[0] in needed else 0


def _registers(text: str) -> int:
    """Number of words in a list of registers, such as `{r4, r5, pc}` or `{d8-d15}`."""
    count = 0
    for part in text.strip("{}").split(","):
        first, _, last = part.strip().partition("-")
        count += (int(last[1:]) - int(first[1:]) + 1 if last else 1) * (2 if first.startswith("d") else 1)
    return count
