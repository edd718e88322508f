"""Many parts of files, read in as few requests as is worth while."""

from collections.abc import Sequence

import numpy as np

from rudel.data.records.byte_sources import Source, read_blocks

_LARGEST_BLOCK = 1 << 23


class Reader:
    """Reads parts of files that are numbered by one sequence.

    Args:
        sources: the files.
        begins: of the parts, for each file int64 (n,).
        lengths: of the parts, the same.
    """

    def __init__(self, sources: Sequence[Source], begins: Sequence[np.ndarray], lengths: Sequence[np.ndarray]) -> None:
        self._sources = sources
        self._gap = max((source.gap for source in sources), default=0)
        sizes = [source.size + self._gap + 1 for source in sources]
        self._bases = np.cumsum([0, *sizes])[:-1]  # all files behind each other, too far apart to be joined
        places = [begin + base for begin, base in zip(begins, self._bases, strict=True)]
        self._begins = np.concatenate(places) if places else np.zeros(0, np.int64)
        self._lengths = np.concatenate(lengths) if lengths else np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self._begins)

    def read(self, numbers: np.ndarray) -> list[bytes]:
        """Some parts, in this order; what lies near each other is read as one and cut.

        Args:
            numbers: int64 (n,).

        Raises:
            DataError: a file cannot be read.
        """
        if not len(numbers):
            return []
        begins = self._begins[numbers]
        order = np.argsort(begins, kind="stable")
        begins = begins[order]
        ends = begins + self._lengths[numbers[order]]
        firsts = _firsts_of_blocks(begins, ends, self._gap)
        block_begins = begins[firsts]
        files = np.searchsorted(self._bases, block_begins, "right") - 1
        bases = self._bases[files]
        block_ends = ends[np.append(firsts[1:], len(order)) - 1]
        spans = zip(files.tolist(), (block_begins - bases).tolist(), (block_ends - bases).tolist(), strict=True)
        blocks = read_blocks([(self._sources[file], begin, end) for file, begin, end in spans])
        results = [b""] * len(order)
        if len(blocks) == len(order):
            for place, block in zip(order.tolist(), blocks, strict=True):
                results[place] = block
            return results
        of = np.repeat(np.arange(len(firsts)), np.diff(firsts, append=len(order)))
        shifts = block_begins[of]
        cuts = zip(order.tolist(), of.tolist(), (begins - shifts).tolist(), (ends - shifts).tolist(), strict=True)
        for place, block, begin, end in cuts:
            results[place] = blocks[block][begin:end]
        return results

    def where(self, number: int) -> tuple[Source, int]:
        """The file that a part is in, and where it begins there."""
        file = int(np.searchsorted(self._bases, self._begins[number], "right")) - 1
        return self._sources[file], int(self._begins[number] - self._bases[file])


def _firsts_of_blocks(begins: np.ndarray, ends: np.ndarray, gap: int) -> np.ndarray:
    """Which of some sorted parts begin a block; in a block gaps are small, and it is short or has one part."""
    breaks = np.flatnonzero(begins[1:] - ends[:-1] > gap) + 1
    firsts = np.concatenate(([0], breaks))
    if len(firsts) == len(begins) or ends[-1] - begins[0] <= _LARGEST_BLOCK:
        return firsts
    starts = np.repeat(begins[firsts], np.diff(firsts, append=len(begins)))
    pieces = (begins - starts) // _LARGEST_BLOCK
    return np.union1d(firsts, np.flatnonzero(np.diff(pieces) > 0) + 1)
