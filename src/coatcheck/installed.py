"""Finds the products that are installed, by the entry points of Python distributions.

A distribution registers a product, and the service names that only this product may use:

    [project.entry-points."coatcheck.products"]
    echo = "my_package.product:PRODUCT"

    [project.entry-points."coatcheck.services"]
    echo = "my_package.product:PRODUCT"

Reading an entry point does not import the object that it names. So a process knows which names are
taken, and imports only the products that are switched on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from coatcheck.domain.errors import SettingsInvalid

PRODUCTS_GROUP: Final = "coatcheck.products"
SERVICES_GROUP: Final = "coatcheck.services"
_SETTING: Final = "COATCHECK_PRODUCTS"


def installed_products() -> Sequence[str]:
    """The names of all products that are installed, in alphabetical order."""
    return [*_products()]


@cache
def product_folders() -> Mapping[str, Path]:
    """The package folder of every installed product, which holds its schema and its SQL.

    Finding the folder does not import the package: a product that is off is not loaded.
    """
    folders = {}
    for name, point in _products().items():
        spec = find_spec(point.module.rpartition(".")[0])
        if spec is not None and spec.submodule_search_locations:
            folders[name] = Path(spec.submodule_search_locations[0])
    return folders


@cache
def reserved_services() -> Mapping[str, str]:
    """The product that owns each reserved service name."""
    owners = {point.value: name for name, point in _products().items()}
    services = _by_name(SERVICES_GROUP, "service name")
    return {name: owners.get(point.value, point.value) for name, point in services.items()}


def invalidate_caches() -> None:
    """Look for distributions anew, after one was installed or removed while this process runs."""
    for each in (product_folders, reserved_services, _load, _products):
        each.cache_clear()


def chosen_products(requested: Sequence[str]) -> Sequence[str]:
    """The products that a setting names, or all installed products if it names none.

    Raises SettingsInvalid for a product that is not installed.
    """
    installed = _products()
    if not installed:
        raise SettingsInvalid(
            f"no product is installed: no distribution has entry points of {PRODUCTS_GROUP}. "
            "Install Coatcheck with pip, as an editable install if need be"
        )
    unknown = [name for name in requested if name not in installed]
    if unknown:
        raise SettingsInvalid(
            f"{_SETTING}: {_listed(unknown)} {'is' if len(unknown) == 1 else 'are'} not installed; "
            f"installed are {_listed(installed)}"
        )
    return [name for name in installed if not requested or name in requested]


def load_products(requested: Sequence[str]) -> Sequence[Any]:
    """Import the products that a setting names, or all installed products if it names none.

    Raises SettingsInvalid for a product that is not installed or cannot be imported.
    """
    return [_load(name) for name in chosen_products(requested)]


@cache
def _load(name: str) -> Any:
    point = _products()[name]
    try:
        return point.load()
    except Exception as error:
        # The module may come from a third party, and may fail to load in any way.
        raise SettingsInvalid(
            f"the product {name} of {_distribution(point)} cannot be loaded from {point.value}: "
            f"{type(error).__name__}: {error}"
        ) from error


@cache
def _products() -> Mapping[str, EntryPoint]:
    return _by_name(PRODUCTS_GROUP, "product")


def _by_name(group: str, kind: str) -> Mapping[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=group), key=lambda each: each.name):
        other = found.setdefault(point.name, point)
        if other is not point:
            raise SettingsInvalid(
                f"two distributions have the {kind} {point.name}: {_distribution(other)} and "
                f"{_distribution(point)}; uninstall one of them"
            )
    return found


def _distribution(point: EntryPoint) -> str:
    return "an unnamed distribution" if point.dist is None else point.dist.name


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
