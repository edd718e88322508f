"""Packages to set hosts up with, resolved once for each kind of host and shared by all of them."""

import asyncio
import hashlib
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from packaging.requirements import Requirement

from rudel.cluster.own_wheel import OwnWheel, build_own_wheel
from rudel.cluster.pins import Target, find_pins
from rudel.cluster.wheels import Wheel, fetch_pip, fetch_wheels, look_up


@dataclass
class Supplies:
    """Rudel's own wheel, the wheel of pip, and for each kind of host its versions and wheels.

    Args:
        minimal: only what a worker needs.
    """

    minimal: bool
    _found: dict[object, asyncio.Task] = field(default_factory=dict, init=False)
    _listeners: dict[Target, list[Callable[[str], None]]] = field(default_factory=dict, init=False)

    async def own(self) -> OwnWheel:
        """The wheel of the Rudel that runs here."""
        return await self._once("own", lambda: asyncio.to_thread(build_own_wheel))

    async def pip(self) -> Wheel:
        """The wheel of pip."""
        return await self._once("pip", fetch_pip)

    async def pins(self, target: Target) -> dict[str, str]:
        """Versions of all packages for a kind of host, by their normalised names; those of pip and Rudel left out."""
        return await self._once(("pins", target), partial(self._pins, target))

    async def wheels(self, target: Target, on_progress: Callable[[str], None]) -> list[Wheel]:
        """The wheels of these, fetched where they are not there yet."""
        pins, listeners = await self.pins(target), self._listeners.setdefault(target, [])
        listeners.append(on_progress)

        def tell_all(text: str) -> None:
            for listener in listeners:
                listener(text)

        return await self._once(("wheels", target), partial(fetch_wheels, target, pins, tell_all))

    async def fingerprint(self, target: Target) -> str:
        """Says whether an environment is as it is to be: it is the same for the same source and versions."""
        parts = [target.python, target.machine, (await self.own()).sha256, await self.pins(target)]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    async def _pins(self, target: Target) -> dict[str, str]:
        loop = asyncio.get_running_loop()

        def find(requirement: Requirement) -> tuple[str, list[str]]:
            return asyncio.run_coroutine_threadsafe(look_up(requirement, target), loop).result()

        return await asyncio.to_thread(find_pins, target, self.minimal, find)

    async def _once(self, key: object, make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        if key not in self._found:
            self._found[key] = asyncio.create_task(make())
        return await asyncio.shield(self._found[key])
