"""The navigation menu."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from coatcheck.dashboard.session import Session


@dataclass(frozen=True, slots=True)
class Place:
    """A page in the menu. ``needs`` is the scope without which the page would be empty."""

    title: str
    path: str
    icon: str
    needs: str = "read"


@dataclass(frozen=True, slots=True)
class Listed:
    """A menu entry, and whether the visitor is on its page or on one below it."""

    place: Place
    is_here: bool


PLACES: Final = (
    Place("Overview", "/ui/", "overview"),
    Place("Jobs", "/ui/jobs", "jobs"),
    Place("Batches", "/ui/batches", "batches"),
    Place("Webhooks", "/ui/webhooks", "webhooks", "admin"),
    Place("Services", "/ui/services", "services"),
    Place("API keys", "/ui/keys", "keys", "admin"),
    Place("Usage", "/ui/usage", "usage"),
)


def for_visitor(session: Session, path: str) -> list[Listed]:
    """The menu entries that the visitor's credential allows."""
    return [Listed(each, _is_at(each, path)) for each in PLACES if session.may(each.needs)]


def _is_at(place: Place, path: str) -> bool:
    if place.path == "/ui/":
        return path == place.path
    return path == place.path or path.startswith(f"{place.path}/")
