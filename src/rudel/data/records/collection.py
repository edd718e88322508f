"""The records of several files as one sequence, read by number and verified by checksum."""

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath

import numpy as np

from rudel.data.records.byte_sources import Source, open_source
from rudel.data.records.checksum import masked_of_each
from rudel.data.records.index import ADVICE, OVERHEAD, FileIndex
from rudel.data.records.index_cache import indexed
from rudel.data.records.reading import Reader
from rudel.data.records.uniform import uniform_rows
from rudel.errors import DataError

_AT_ONCE = 8
_HEADER = OVERHEAD - 4


class Collection:
    """Records of some files, numbered in the order of the files.

    Args:
        paths: of the files.
        skip_corrupt: leave damaged records out, which takes reading all of them once.

    Raises:
        DataError: a file cannot be read, or is damaged; or there is no record at all.
    """

    def __init__(self, paths: Sequence[str], skip_corrupt: bool = False) -> None:
        with ThreadPoolExecutor(min(_AT_ONCE, len(paths))) as threads:
            opened = list(threads.map(lambda path: _opened(path, skip_corrupt), paths))
        self.sources: tuple[Source, ...] = tuple(source for source, _ in opened)
        self.indexes: tuple[FileIndex, ...] = tuple(index for _, index in opened)
        begins, lengths = [index.begins for index in self.indexes], [index.lengths for index in self.indexes]
        self._reader = Reader(self.sources, begins, lengths)
        self._uniform = uniform_rows(self.sources, self.indexes)
        self._checksums = np.concatenate([index.checksums for index in self.indexes])
        if not len(self):
            why = f"all {self.skipped:,} are damaged" if self.skipped else "the files are empty"
            raise DataError(f"There is no record in {paths[0]}{' and others' if paths[1:] else ''}: {why}.")

    def __len__(self) -> int:
        return len(self._reader)

    @property
    def skipped(self) -> int:
        """How many places of damage were left out: a record each, or a stretch of them whose lengths are lost."""
        return sum(len(index.damaged) for index in self.indexes)

    def contents(self, numbers: np.ndarray) -> list[bytes]:
        """The contents of records, int64 (n,), in this order.

        Raises:
            DataError: one cannot be read, or does not fit its checksum.
        """
        contents = self._reader.read(numbers)
        self._verify(contents, numbers)
        return contents

    def rows(self, numbers: np.ndarray) -> np.ndarray | None:
        """The contents of records, int64 (n,), as rows, uint8 (n, length); None unless they are all short and as long.

        Raises:
            DataError: see `contents`.
        """
        if self._uniform is None:
            return None
        rows, contents = self._uniform.take(numbers)
        self._verify(contents, numbers)
        return rows

    def _verify(self, contents: list[bytes], numbers: np.ndarray) -> None:
        wrong = np.flatnonzero(masked_of_each(contents) != self._checksums[numbers])
        if len(wrong):
            file, at = self._where(int(numbers[wrong[0]]))
            raise DataError(f"{file} is damaged: the record at byte {at:,} has a wrong checksum; {ADVICE}.")

    def name(self, number: int) -> str:
        """The name of a record in messages: its file and its place there."""
        file, at = self._where(number)
        return f"the record at byte {at:,} of {file}"

    def fingerprint(self) -> str:
        """Another one if a record is another one, or stands in another place; where the files lie does not matter."""
        digest = hashlib.sha256()
        for source, index in zip(self.sources, self.indexes, strict=True):
            digest.update(f"{PurePosixPath(source.name).name} {source.size} {len(index)}\n".encode())
            digest.update(index.checksums.tobytes())
            digest.update(index.damaged.tobytes())
        return digest.hexdigest()[:32]

    def _where(self, number: int) -> tuple[str, int]:
        source, begin = self._reader.where(number)
        return source.name, begin - _HEADER


def _opened(path: str, skip_corrupt: bool) -> tuple[Source, FileIndex]:
    source = open_source(path)
    return source, indexed(source, skip_corrupt)
