"""Calls that block, such as a file's, made so that an event loop goes on meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
ResultT = TypeVar("ResultT")


async def in_a_thread(
    call: Callable[Parameters, ResultT], *arguments: Parameters.args, **options: Parameters.kwargs
) -> ResultT:
    """For the client that waits: the call in a thread of its own."""
    return await asyncio.to_thread(call, *arguments, **options)


def at_once(
    call: Callable[Parameters, ResultT], *arguments: Parameters.args, **options: Parameters.kwargs
) -> ResultT:
    """For the client that blocks: the call as it is."""
    return call(*arguments, **options)
