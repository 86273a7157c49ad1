"""Runs blocking calls, such as file I/O, without blocking an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
ResultT = TypeVar("ResultT")


async def in_a_thread(
    call: Callable[Parameters, ResultT], *arguments: Parameters.args, **options: Parameters.kwargs
) -> ResultT:
    """For the async client: run the call in a thread."""
    return await asyncio.to_thread(call, *arguments, **options)


def at_once(
    call: Callable[Parameters, ResultT], *arguments: Parameters.args, **options: Parameters.kwargs
) -> ResultT:
    """For the sync client: run the call directly."""
    return call(*arguments, **options)
