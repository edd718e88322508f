"""Sources of drawings: a local folder, or a mirror of the public bucket with the cache before it.

Both are used in two steps: `prepare` makes sure that the drawings can be read and counts them; `read` then fills arrays
of just that size, so that no drawing is in memory twice.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import numpy as np

from rudel.data.http_range import Version
from rudel.data.npy import LONGEST_HEADER, PIXELS, Header, header_bytes, parse_header
from rudel.data.prefix_cache import Prefix, opened_prefix
from rudel.data.ranged_download import fetch
from rudel.errors import DataError, DownloadError
from rudel.retry_policy import RetryPolicy

Progress = Callable[[int, int], None]
"""Called with (bytes that are there, bytes in all)."""

_CONNECTIONS = 8
_USUAL_HEADER = 128

_T = TypeVar("_T")


@dataclass(frozen=True)
class Folder:
    """A local folder that holds a file `<class>.npy` per class.

    Args:
        path: of the folder, which exists.
    """

    path: Path

    def prepare(self, classes: Sequence[str], count: int) -> list[int]:
        """The number of drawings of each class, up to `count`.

        Raises:
            DataError: a file is missing, or holds no drawings.
        """
        missing = [f"`{name}`" for name in classes if not self._file(name).is_file()]
        if missing:
            there = sorted(file.stem for file in self.path.glob("*.npy"))
            found = f"{', '.join(there[:20])}{' and more' if there[20:] else ''}" if there else "none"
            raise DataError(
                f"`{self.path}` has no drawings of {', '.join(missing)}, of which each needs a file `<class>.npy`: "
                f"there are {found}."
            )
        return [min(count, self._header(name).rows) for name in classes]

    def read(self, classes: Sequence[str], targets: Sequence[np.ndarray]) -> None:
        """Fills a uint8 (rows, 784) array per class with its first drawings.

        Raises:
            DataError: a file cannot be read.
        """
        for name, target in zip(classes, targets, strict=True):
            header, path = self._header(name), self._file(name)
            if header.rows < len(target):
                raise DataError(f"`{path}` changed while it was being read: try again.")
            target[:] = np.memmap(path, np.uint8, "r", header.offset, target.shape)

    def _file(self, name: str) -> Path:
        return self.path / f"{name}.npy"

    def _header(self, name: str) -> Header:
        path = self._file(name)
        try:
            with path.open("rb") as file:
                header = parse_header(file.read(LONGEST_HEADER))
            size = path.stat().st_size
        except OSError as error:
            raise DataError(f"`{path}` cannot be read ({error.strerror or error}).") from error
        except ValueError as error:
            raise DataError(f"`{path}` {error}: give a folder with Quick, Draw!'s own files.") from error
        if header is None or size < header.end(header.rows):
            raise DataError(f"`{path}` is truncated at {size:,} bytes: fetch it again.")
        return header


@dataclass(frozen=True)
class Mirror:
    """A web server that has a file `<class>.npy` per class, of which the first drawings are fetched into the cache.

    Args:
        address: of the folder on the server, http or https, quoted, without a slash at the end.
        cache: folder of what was fetched from this address.
        retry: how long to wait for the server, and how often to try.
        progress: called with bytes while something is fetched.
        cancelled: set once a download failed, so that the others stop.
    """

    address: str
    cache: Path
    retry: RetryPolicy
    progress: Progress | None
    cancelled: threading.Event = field(default_factory=threading.Event)

    def prepare(self, classes: Sequence[str], count: int) -> list[int]:
        """Fetches what is not in the cache, and says how many drawings there are of each class, up to `count`.

        Raises:
            DownloadError: the drawings could not be fetched.
            DataError: the cache cannot be used.
        """
        meter = _Meter(len(classes), _USUAL_HEADER + count * PIXELS, self.progress)

        def rows(at: int) -> int:
            with self._present(classes[at], count, lambda *state: meter.set(at, *state)) as (header, _):
                return min(count, header.rows)

        return self._in_parallel(rows, len(classes))

    def read(self, classes: Sequence[str], targets: Sequence[np.ndarray]) -> None:
        """Fills a uint8 (rows, 784) array per class with its first drawings.

        Raises:
            DownloadError: the drawings changed since `prepare`, and could not be fetched again.
            DataError: the cache cannot be used.
        """

        def fill(at: int) -> None:
            with self._present(classes[at], len(targets[at]), lambda *_: None) as (header, prefix):
                if header.rows < len(targets[at]):
                    raise DownloadError(f"The drawings of `{classes[at]}` changed while they were read: try again.")
                prefix.read_into(header.offset, targets[at])

        self._in_parallel(fill, len(classes))

    @contextlib.contextmanager
    def _present(self, name: str, count: int, tell: "_Tell") -> Iterator[tuple[Header, Prefix]]:
        """The first drawings of a class in the cache, after fetching what is missing."""
        url = f"{self.address}/{quote(name)}.npy"
        with opened_prefix(self.cache, quote(name, safe=" "), url, self.cancelled) as prefix:
            sink = _DrawingsSink(prefix, count, url, tell)
            tell(sink.length, sink.wanted, False)
            fetch(url, sink, self.retry, self.cancelled)
            assert sink.header is not None
            yield sink.header, prefix

    def _in_parallel(self, work: Callable[[int], _T], count: int) -> list[_T]:
        """Does `work` for 0 to `count`; the first error stops all."""
        with ThreadPoolExecutor(min(_CONNECTIONS, count), "rudel-quickdraw") as pool:
            futures = [pool.submit(work, at) for at in range(count)]
            try:
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                self.cancelled.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return [future.result() for future in futures]


_Tell = Callable[[int, int, bool], None]
"""Called with (bytes that are there, bytes wanted, whether they were fetched just now)."""


class _DrawingsSink:
    """Takes the header and the first `count` drawings of a file into the cache, and checks that they are drawings."""

    def __init__(self, prefix: Prefix, count: int, url: str, tell: _Tell) -> None:
        self._prefix = prefix
        self._count = count
        self._url = url
        self._tell = tell
        self._offset = _USUAL_HEADER
        self.header: Header | None = None
        try:
            self._look()
        except ValueError:
            self.restart(Version())

    @property
    def length(self) -> int:
        return self._prefix.length

    @property
    def version(self) -> Version:
        return self._prefix.version

    @property
    def wanted(self) -> int:
        return self.header.end(self._count) if self.header else self._offset + self._count * PIXELS

    def restart(self, version: Version) -> None:
        self.header = None
        self._prefix.restart(version)

    def append(self, chunk: bytes) -> None:
        self._prefix.append(chunk)
        try:
            self._look()
        except ValueError as error:
            self.restart(Version())
            raise DownloadError(
                f"`{self._url}` {error}: check the address and that no log-in page of the network answers instead."
            ) from error
        self._tell(self.length, self.wanted, True)

    def _look(self) -> None:
        if self.header is None:
            self._offset = header_bytes(self._prefix.head) or self._offset
            self.header = parse_header(self._prefix.head)


class _Meter:
    """Adds up the bytes of several downloads, and tells the sums once something travels."""

    def __init__(self, downloads: int, expected: int, progress: Progress | None) -> None:
        self._done = [0] * downloads
        self._total = [expected] * downloads
        self._progress = progress
        self._travelling = False
        self._lock = threading.Lock()

    def set(self, at: int, done: int, total: int, travelling: bool) -> None:
        with self._lock:
            self._done[at], self._total[at] = min(done, total), total
            self._travelling |= travelling
            if self._travelling and self._progress:
                self._progress(sum(self._done), sum(self._total))
