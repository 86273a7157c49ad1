"""What users declare: services, and the functions that answer their endpoints. Does no I/O.

``declare`` holds Service and Endpoint. ``signature`` reads a function's arguments from JSON, with
``type_tree`` to see what their types are made of, ``pydantic_types`` for those that only pydantic
knows, and ``issues`` for the words in which a caller is told what is wrong. ``parameter_kinds``
says which arguments can be written in a path or a query. ``loading`` finds services by name.
"""

from coatcheck.service.declare import Endpoint, Service
from coatcheck.service.loading import load_services

__all__ = ["Endpoint", "Service", "load_services"]
