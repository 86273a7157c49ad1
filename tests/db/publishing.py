"""Workers as the catalogue sees them: a registration with what code declares, and no process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from coatcheck.core.queries import leases
from coatcheck.db.connection import Connection
from coatcheck.domain.catalogue import VersionSpec
from coatcheck.domain.lanes import DEFAULT_POLICIES


async def publish(
    line: Connection,
    versions: Mapping[str, Sequence[VersionSpec]],
    *,
    name: str = "test",
    lease_seconds: float = 600.0,
) -> int:
    """Register a worker that is never heard of again. Its boot number.

    It lives for ``lease_seconds``, or until ``leases.deregister``.
    """
    lanes = {
        lane: replace(policy, ack_seconds=lease_seconds)
        for lane, policy in DEFAULT_POLICIES.items()
    }
    return await leases.register(line, name, "test", lanes, [], versions)


async def fall_silent(line: Connection, boot: int) -> None:
    """Have a worker be unheard of for a day."""
    await line.fetch(
        "UPDATE workers SET last_seen_at = now() - interval '1 day' WHERE boot = $1", boot
    )
