"""Which shape an error has at a path where no route was found, or before one was looked for.

Other people's clients come with paths of their own: OpenAI's below ``/v1``, Ollama's below
``/api``, and any other if somebody forgot the former. They are answered in a shape that they can
read, unless the path lies below the prefix of a product whose errors are problem documents.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol, runtime_checkable

from coatcheck.control.call import ProblemStyle
from coatcheck.control.operations import Operation

_SHARED: Final = frozenset({"api", "v1"})
"""First segments that several products share: the prefix of each has one segment more."""
_OLLAMAS: Final = "api"


class ErrorStyles:
    """The prefixes that products with problem documents claim: those of their routes."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._claimed = frozenset(
            _prefix(each.path) for each in operations if each.problem_style == "plain"
        )

    def of(self, raw_path: str) -> ProblemStyle:
        """The style of an error at a path as it came."""
        prefix = _prefix(raw_path)
        if prefix in self._claimed:
            return "plain"
        return "ollama" if prefix[0] == _OLLAMAS else "openai"


@runtime_checkable
class StyledApp(Protocol):
    """An application that says which style the errors at a path have."""

    error_styles: ErrorStyles


def error_style(app: object, raw_path: str) -> ProblemStyle:
    """The style of an error that ``app`` is not asked for: "plain" unless it says otherwise."""
    return app.error_styles.of(raw_path) if isinstance(app, StyledApp) else "plain"


def _prefix(path: str) -> tuple[str, ...]:
    segments = path.split("/")[1:]
    return tuple(segments[: 2 if segments[0:1] and segments[0] in _SHARED else 1]) or ("",)
