"""Names of services and endpoints, the same for code and for documents."""

from __future__ import annotations

import re
from collections.abc import Container
from functools import lru_cache
from typing import Final

SERVICE_NAME_PATTERN: Final = r"[A-Za-z][A-Za-z0-9_-]{0,62}"
PATH_PATTERN: Final = r"/|(?:/(?:[A-Za-z0-9._~-]+|\{[A-Za-z_][A-Za-z0-9_]*\}))+"
KEY_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9_]*"
VERSION_MAX: Final = 9_999

_RESERVED_PREFIX: Final = "coatcheck"

_SERVICE_NAME = re.compile(SERVICE_NAME_PATTERN)
_PATH = re.compile(PATH_PATTERN)
_PARAMETER = re.compile(r"\{(\w+)\}")
_NOT_ALPHANUMERIC = re.compile(r"[^A-Za-z0-9]+")


def is_service_name(name: str) -> bool:
    """Whether this is a valid service name: a letter, then letters, digits, '-', '_', up to 63."""
    return _SERVICE_NAME.fullmatch(name) is not None


def is_reserved(name: str, of_products: Container[str]) -> bool:
    """Whether no user's service may be called so: ``of_products`` are the names of services that
    belong to products."""
    lowered = name.lower()
    return lowered in of_products or lowered.startswith(_RESERVED_PREFIX)


def is_path(path: str) -> bool:
    """Whether this is a path template: each part is plain characters or a ``{parameter}``."""
    return _PATH.fullmatch(path) is not None


def path_parameters(path: str) -> list[str]:
    """The names of a template's parameters, in order."""
    return _PARAMETER.findall(path)


def path_shape(path: str) -> str:
    """The template without parameter names: two of one shape match the same paths."""
    return _PARAMETER.sub("{}", path)


def endpoint_key(method: str, path: str) -> str:
    """The key of an endpoint: ``post__analyze`` for POST /analyze."""
    return f"{method.lower()}__{_NOT_ALPHANUMERIC.sub('_', path).strip('_')}"


@lru_cache(maxsize=10_000)  # every request uses one of a few
def engine_name(service: str, version: int, key: str) -> str:
    """The ``endpoint`` of its jobs: ``docs.post__analyze``, or ``docs.v2.post__analyze``."""
    return f"{service}.{key}" if version == 1 else f"{service}.v{version}.{key}"
