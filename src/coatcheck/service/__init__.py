"""Declares services: the functions that users write to handle endpoints. Does no I/O.

``declare`` has Service and Endpoint, and finds services by name. ``signature`` decodes a function's
arguments from JSON, with ``pydantic_types`` for types that only pydantic supports, and ``issues``
for the error texts that callers see. It also says which arguments can be written in a path or a
query.
"""

from coatcheck.service.declare import Endpoint, Service, load_services

__all__ = ["Endpoint", "Service", "load_services"]
