"""The operations of the graphs API."""

from __future__ import annotations

from typing import Final

from coatcheck.domain.service_definition import endpoint_key, engine_name

GRAPHS_SERVICE: Final = "graphs"
"""The service that analyses archives."""

GRAPH_OPERATIONS: Final = ("dependency", "call", "domain", "parse", "supermodel")


def graph_endpoint(operation: str) -> str:
    """The ``endpoint`` of an operation's jobs."""
    return engine_name(GRAPHS_SERVICE, 1, endpoint_key("post", f"/{operation}"))


GRAPH_ENDPOINTS: Final = {graph_endpoint(operation): operation for operation in GRAPH_OPERATIONS}
"""The operations by their jobs' endpoint."""
