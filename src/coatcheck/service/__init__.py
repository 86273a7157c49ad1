"""Declares services: the functions that users write to handle endpoints. Does no I/O.

``declare`` has Service and Endpoint. ``signature`` decodes a function's arguments from JSON, with
``pydantic_types`` for types that only pydantic supports, and ``issues`` for the error texts that
callers see. It also says which arguments can be written in a path or a query. ``loading`` finds
services by name.
"""

from coatcheck.service.declare import Endpoint, Service
from coatcheck.service.loading import load_services

__all__ = ["Endpoint", "Service", "load_services"]
