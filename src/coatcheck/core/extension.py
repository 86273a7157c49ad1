"""Queries that a product adds to an engine, on connections that the engine closes.

    class Orders(EngineExtension):
        def __init__(self, context: EngineContext) -> None:
            self._db = context.db("orders", server_settings=PINNED_PLANS)

    orders = engine.extension(Orders)

The engine makes one instance of each class on first use, and closes it with itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from coatcheck.blobs import BlobContainer, UrlSigner
from coatcheck.core.submission import Preparer
from coatcheck.core.submitter import Submitter
from coatcheck.db.connection import Connection
from coatcheck.db.notifications import Notifier
from coatcheck.settings import Settings


@dataclass(frozen=True, slots=True)
class EngineContext:
    """The parts of an engine that an extension may use.

    ``read_db`` is for reads by key, many at once, with pinned plans; ``write_db`` for short
    statements; ``background_db``, with pinned plans, for reads that may take longer. All three
    are shared: a statement that may wait for a lock belongs on a ``db`` of its own.
    """

    settings: Settings
    read_db: Connection
    write_db: Connection
    background_db: Connection
    preparer: Preparer
    submitter: Submitter
    notifier: Notifier
    deployment: Callable[[], Awaitable[UUID]]
    signer: Callable[[], UrlSigner]
    blobs: Callable[[], BlobContainer]
    connections: list[Connection] = field(default_factory=list)
    """The connections that extensions asked for."""

    def db(self, name: str, *, server_settings: Mapping[str, str] | None = None) -> Connection:
        """A connection for one extension alone: opened on first use, closed with the engine."""
        db = Connection(self.settings.database_url, name=name, server_settings=server_settings)
        self.connections.append(db)
        return db


class EngineExtension:
    """Base class for a product's own queries."""

    def __init__(self, context: EngineContext) -> None:
        """Create it on the engine's connections."""

    async def drain(self) -> None:
        """Answer the calls that are pending. The engine closes the connections afterwards."""
