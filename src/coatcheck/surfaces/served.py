"""The surfaces that one ``coatcheck serve`` serves: all of them, on one port."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coatcheck.control.app import Surface
from coatcheck.control.parts import Parts
from coatcheck.domain.batches import BATCH_ENDPOINTS
from coatcheck.domain.endpoint_names import GRAPHS_SERVICE
from coatcheck.domain.graphs import GRAPH_ENDPOINTS
from coatcheck.engine.notices import Notices
from coatcheck.surfaces.batches import surface as batches
from coatcheck.surfaces.gateway import surface as gateway
from coatcheck.surfaces.graphs import surface as graphs

SURFACES: Final[Sequence[Surface]] = (
    gateway.operations,
    graphs.operations,
    batches.operations,
)

OWN_ENDPOINTS: Final[Sequence[str]] = (*GRAPH_ENDPOINTS, *BATCH_ENDPOINTS)
"""The endpoints of surfaces that have services of their own, which no catalogue lists."""


def notices(parts: Parts) -> Notices:
    """What webhooks say, in the words of each surface."""
    return Notices(
        parts.engine,
        otherwise=gateway.teller(parts),
        services={GRAPHS_SERVICE: graphs.teller(parts)},
        kinds=batches.tellers(parts),
    )
