"""The surfaces that one ``coatcheck serve`` serves: all of them, on one port."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coatcheck.control.app import Surface
from coatcheck.domain.graphs import GRAPH_ENDPOINTS
from coatcheck.surfaces.gateway import surface as gateway
from coatcheck.surfaces.graphs import surface as graphs

SURFACES: Final[Sequence[Surface]] = (gateway.operations, graphs.operations)

OWN_ENDPOINTS: Final[Sequence[str]] = tuple(GRAPH_ENDPOINTS)
"""The endpoints of surfaces that have services of their own, which no catalogue lists."""
