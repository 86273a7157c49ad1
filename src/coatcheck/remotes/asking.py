"""Asks a remote about many ids that it can only be asked about one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from coatcheck.remotes.caller import HANGS
from coatcheck.remotes.errors import RemoteError, RemoteFaulty, RemoteUnreachable
from coatcheck.remotes.protocol import RemoteStatus, Unclear

AT_ONCE: Final = 8


async def of_each(
    ids: Sequence[str], ask: Callable[[str], Awaitable[RemoteStatus]]
) -> dict[str, RemoteStatus]:
    """How each of ``ids`` stands. One that goes wrong is Unclear, and the others are asked about.

    Unless the remote is away, or hangs again and again: then those that are left are Unclear for
    the same reason, so that a long list does not wait for each of them.
    """
    found: dict[str, RemoteStatus] = {}
    ahead = iter(dict.fromkeys(ids))
    hopeless: RemoteError | None = None
    hangs = 0

    async def work() -> None:
        nonlocal hopeless, hangs
        for remote_id in ahead:
            if hopeless is not None:
                found[remote_id] = Unclear(hopeless)
                continue
            try:
                found[remote_id] = await ask(remote_id)
            except RemoteUnreachable as error:
                hopeless = error
                found[remote_id] = Unclear(error)
            except RemoteError as error:
                hangs += isinstance(error, RemoteFaulty) and error.code == HANGS
                if hangs >= AT_ONCE:
                    hopeless = error
                found[remote_id] = Unclear(error)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(len(ids), AT_ONCE)):
            group.create_task(work())
    return found
