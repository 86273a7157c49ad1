"""Queries that a product adds to an engine.

    class Orders(EngineExtension):
        def __init__(self, context: EngineContext) -> None:
            self._db = context.database.pooled("orders", server_settings=PINNED_PLANS)

    orders = engine.extension(Orders)

The engine makes one instance of each class on first use, and closes it with itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID

from coatcheck.blobs import BlobContainer, UrlSigner
from coatcheck.core.submission import Preparer
from coatcheck.core.submitter import Submitter
from coatcheck.db.connection import Connection
from coatcheck.db.database import Database
from coatcheck.db.notifications import Notifier
from coatcheck.settings import Settings


@dataclass(frozen=True, slots=True)
class EngineContext:
    """The parts of an engine that an extension may use.

    ``read_db`` is for reads by key, many at once, with pinned plans; ``write_db`` for short
    statements; ``background_db``, with pinned plans, for reads that may take longer. All three
    are shared: a statement that may wait for a lock belongs on a connection of its own, from
    ``database``.
    """

    settings: Settings
    database: Database
    read_db: Connection
    write_db: Connection
    background_db: Connection
    preparer: Preparer
    submitter: Submitter
    notifier: Notifier
    deployment: Callable[[], Awaitable[UUID]]
    signer: Callable[[], UrlSigner]
    blobs: Callable[[], BlobContainer]


class EngineExtension:
    """Base class for a product's own queries."""

    def __init__(self, context: EngineContext) -> None:
        """Create it on the engine's connections."""

    async def drain(self) -> None:
        """Answer the calls that are pending. The engine closes the connections afterwards."""
