"""Loads services by the ``module:attribute`` names given on the command line."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from functools import reduce
from pathlib import Path
from typing import Any

from coatcheck.domain.errors import SettingsInvalid
from coatcheck.service.declare import Service


def load_services(targets: Iterable[str]) -> list[Service]:
    """The services that ``module:attribute`` strings name, in order, without duplicates.

    Searches the current folder first. Raises SettingsInvalid with a hint if a target names no
    service; an error inside the module itself propagates.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    by_name: dict[tuple[str, int], tuple[str, Service]] = {}
    for target in targets:
        service = _load(target)
        version = (service.name, service.version)
        first, known = by_name.setdefault(version, (target, service))
        if known is not service:
            raise SettingsInvalid(
                f"{first} and {target} are two services with the same name, {service.name!r};"
                " rename one or give it another version"
            )
    return [service for _, service in by_name.values()]


def _load(target: str) -> Service:
    module_name, colon, attribute = target.partition(":")
    if not (colon and module_name and attribute) or module_name.startswith("."):
        raise SettingsInvalid(
            f"{target!r} is not a service name; write it as module:attribute, such as app:docs"
        )
    module = _import(target, module_name)
    try:
        found = reduce(getattr, attribute.split("."), module)
    except AttributeError:
        raise SettingsInvalid(
            f"{target!r}: {module_name} has no {attribute!r}.{_services_hint(module_name, module)}"
        ) from None
    if not isinstance(found, Service):
        raise SettingsInvalid(
            f"{target!r} is a {type(found).__name__}, not a Service."
            f"{_services_hint(module_name, module)}"
        )
    return found


def _import(target: str, module_name: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name != missing and not module_name.startswith(f"{missing}."):
            raise  # the module was found, but one of its imports was not
        raise SettingsInvalid(
            f"{target!r}: no module {missing!r} in {Path.cwd()} or on the Python path; run the"
            " command in the folder that contains it, or set PYTHONPATH"
        ) from None


def _services_hint(module_name: str, module: Any) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, Service)]
    if not names:
        return f" {module_name} declares no services."
    return " It has " + ", ".join(f"{module_name}:{name}" for name in names) + "."
