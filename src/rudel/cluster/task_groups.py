"""Concurrent tasks: when one fails, the others are cancelled and awaited."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


async def for_each(
    items: Iterable[_Item], work: Callable[[_Item], Coroutine[Any, Any, _Result]]
) -> tuple[_Result, ...]:
    """Does the same for all items at once.

    Returns:
        The results, in the order of the items.

    Raises:
        BaseException: the first that was raised; the other work was cancelled and has ended.
    """
    async with tasks() as group:
        begun = [group.create_task(work(item)) for item in items]
    return tuple(task.result() for task in begun)


@contextlib.asynccontextmanager
async def tasks() -> AsyncIterator[asyncio.TaskGroup]:
    """A group of tasks that raises the first error by itself, and not in a group of errors."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from several
