"""Queries the status of many ids, for remotes that answer about one id at a time."""

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
    """The status of each of ``ids``. If one query fails, its id is Unclear and the others go on.

    If the remote is unreachable or hangs repeatedly, all remaining ids become Unclear for the same
    reason, so that a long list does not wait for each of them.
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
