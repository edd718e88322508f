"""Loads what is to be served, and looks for new versions while it is.

A new version is loaded and compiled in a thread while the old one answers; then it takes its place between two
requests. What cannot be found or loaded is logged once, and the old one stays. Files that are not written atomically
are loaded when two looks in a row have seen the same.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from rudel.errors import OptionError, RudelError, ServeError
from rudel.report.formatting import plural
from rudel.runs.model_as_run import class_names
from rudel.serve.model_sources import FileOptions, Found, Source, find_versions, load, numbers_there
from rudel.serve.models import Models, seconds_of
from rudel.serve.runtimes.runtime import Loaded
from rudel.serve.server_limits import Limits

_T = TypeVar("_T")


class Watching:
    """Keeps the served models like those on the disk.

    Args:
        sources: what is to be served.
        models: where to put it.
        limits: how large batches are, and how often to look.
        options: for model files.
        on_change: called with a sentence when something has changed.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        models: Models,
        limits: Limits,
        options: FileOptions,
        on_change: Callable[[str], None],
    ) -> None:
        self._sources = sources
        self._models = models
        self._limits = limits
        self._options = options
        self._on_change = on_change
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="loading")
        self._served: dict[str, dict[int, Found]] = {source.name: {} for source in sources}
        self._seen: dict[str, list[Found]] = {}
        self._refused: set[Found] = set()
        self._told: set[str] = set()

    async def load_all(self) -> None:
        """Loads everything that there is now; a model that cannot be loaded does not keep the others from being served.

        Raises:
            RudelError: nothing can be served.
        """
        broken: list[RudelError] = []
        for source in self._sources:
            if not source.path.exists():
                find_versions(source)  # raises: a mistake in the command
        for source in self._sources:
            try:
                await self._load_first(source)
            except OptionError:
                raise  # a mistake in the command, too
            except RudelError as error:
                broken.append(error)
                self._models.cannot_load(source.name, str(error))
                if len(self._sources) > 1:
                    self._on_change(f"{source.name}: cannot be served: {error}")
        if len(broken) == len(self._sources):
            raise broken[0]
        names = tuple(class_names(self._options.classes))
        if names and not broken and not any(version.loaded.labels == names for version in self._models.all):
            served = ", ".join(str(source.path) for source in self._sources)
            raise OptionError(
                f"--classes has {plural(len(names), 'name')}, and no model in {served} has an output for each of them."
            )

    async def _load_first(self, source: Source) -> None:
        found = find_versions(source)
        for place, each in enumerate(found):
            try:
                loaded, seconds = await self._in_thread(self._load, each)
            except RudelError as error:
                self._refused.add(each)
                if isinstance(error, OptionError) or (place == len(found) - 1 and not self._served[source.name]):
                    raise
                self._models.cannot_load(source.name, str(error))
                self._on_change(f"{source.name}: {each.path} cannot be served: {error}")
                continue
            number = self._put(source, each, loaded, seconds)
            self._on_change(f"{source.name}: version {number} of {each.path}, computed by {loaded.platform}")
        if not found:
            raise ServeError(f"There is no version in {source.path} that can be served.")
        self._note_failures(source, found)

    async def watch(self) -> None:
        """Looks for changes until it is cancelled."""
        while True:
            await asyncio.sleep(self._limits.poll)
            for source in self._sources:
                await self._look(source)

    async def _look(self, source: Source) -> None:
        try:
            found = await self._in_thread(find_versions, source)
            there = await self._in_thread(numbers_there, source)
        except ServeError as error:
            self._models.cannot_load(source.name, str(error))
            if self._served[source.name] and str(error) not in self._told:
                self._told.add(str(error))
                self._on_change(f"{source.name}: nothing new can be served, and what is served stays: {error}")
            return
        except (RudelError, OSError):
            return  # an unfinished or missing run: what was loaded from it goes on
        before = self._seen.get(source.name, [])
        self._seen[source.name] = found
        served = self._served[source.name]
        for each in found:
            known = any(each == other for other in served.values()) or each in self._refused
            steady = each.kind == "run" or each in before
            if not known and steady:
                await self._renew(source, each)
        for number in [n for n in served if there and n not in there]:
            if len(served) > 1:
                del served[number]
                self._models.remove(source.name, number)
                self._on_change(f"{source.name}: version {number} is gone.")
        self._note_failures(source, found)

    async def _renew(self, source: Source, found: Found) -> None:
        try:
            loaded, seconds = await self._in_thread(self._load, found)
        except (RudelError, OSError) as error:
            self._refused.add(found)
            self._models.cannot_load(source.name, str(error))
            stays = ", and the old one stays" if self._served[source.name] else ""
            self._on_change(f"{source.name}: a new version cannot be served{stays}: {error}")
            return
        try:
            if found not in await self._in_thread(find_versions, source):
                return  # it has changed while it was read
        except (RudelError, OSError):
            return  # what is there now is said at the next look
        number = self._put(source, found, loaded, seconds)
        self._on_change(f"{source.name}: version {number} is now served.")

    def _note_failures(self, source: Source, found: Sequence[Found]) -> None:
        self._models.note_failed(
            source.name, any(each in self._refused for each in found) or source.name in self._models.unserved
        )

    def _load(self, found: Found) -> tuple[Loaded, float]:
        try:
            loaded = load(found, self._limits.batch, self._options)
            return loaded, seconds_of(loaded, self._limits.batch)
        except RudelError:
            raise
        except Exception as error:  # of JAX, LiteRT or TensorFlow, or of a layer of the user's
            from rudel.loop.model_state import first_line

            raise ServeError(f"{found.path} cannot be computed: {first_line(error).rstrip('.')}.") from error

    def _put(self, source: Source, found: Found, loaded: Loaded, seconds: float) -> int:
        served = self._served[source.name]
        counts_on = found.number is None
        number = max(served, default=0) + 1 if found.number is None else found.number
        if counts_on:
            served.clear()
        served[number] = found
        self._models.put(source.name, number, loaded, seconds, alone=counts_on)
        return number

    async def _in_thread(self, call: Callable[..., _T], *arguments: Any) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)
