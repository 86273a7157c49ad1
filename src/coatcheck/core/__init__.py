"""Jobs: submit, read, wait, cancel, list. Products and HTTP build on it; it knows neither."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coatcheck.core.engine import Engine, Health
    from coatcheck.core.submission import Submission, Ticket

__all__ = ["Engine", "Health", "Submission", "Ticket"]

_WHEN_FIRST_USED = {
    "Engine": "coatcheck.core.engine",
    "Health": "coatcheck.core.engine",
    "Submission": "coatcheck.core.submission",
    "Ticket": "coatcheck.core.submission",
}


def __getattr__(name: str) -> Any:
    """Import the engine late: a worker needs some of its modules, and no engine."""
    module = _WHEN_FIRST_USED.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)
