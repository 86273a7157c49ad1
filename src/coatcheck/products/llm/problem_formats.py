"""Errors in the formats that clients of OpenAI's and of Ollama's API read.

Both are problems with a member ``error``. They are plain JSON, because some of the clients parse no
other media type.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec

from coatcheck.http.problem_formats import Problem, ProblemFormat

_JSON: Final = "application/json"


class OllamaProblem(Problem, frozen=True, rename="camel"):
    """A problem in which Ollama's clients find their message: ``error`` repeats ``detail``."""

    error: str


class OpenAIError(msgspec.Struct, frozen=True):
    """What went wrong, as OpenAI's clients expect it."""

    message: str
    type: str
    param: str | None
    code: str


class OpenAIProblem(Problem, frozen=True, rename="camel"):
    """A problem in which OpenAI's clients find their error."""

    error: OpenAIError


_OPENAI_TYPES: Final[Mapping[int, str]] = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
}


def openai_error(status: int, code: str, message: str, param: str | None = None) -> OpenAIError:
    """An error for OpenAI's clients, of the type that goes with ``status``."""
    otherwise = "invalid_request_error" if status < 500 else "api_error"
    return OpenAIError(message, _OPENAI_TYPES.get(status, otherwise), param, code)


def _for_ollama(problem: Problem) -> OllamaProblem:
    return OllamaProblem(**msgspec.structs.asdict(problem), error=problem.detail)


def _for_openai(problem: Problem) -> OpenAIProblem:
    param = problem.details[0].field if problem.details else None
    error = openai_error(problem.status, problem.code, problem.detail, param)
    return OpenAIProblem(**msgspec.structs.asdict(problem), error=error)


OLLAMA: Final = ProblemFormat(_JSON, OllamaProblem, _for_ollama)
OPENAI: Final = ProblemFormat(_JSON, OpenAIProblem, _for_openai)

UNROUTED_FORMATS: Final[Mapping[str, ProblemFormat]] = {
    "/": OPENAI,
    "/v1": OPENAI,
    "/api": OLLAMA,
}
"""By path prefix. OpenAI's clients call paths below ``/v1``, and any other path when ``/v1`` was
left out of their base URL; Ollama's clients call paths below ``/api``."""
