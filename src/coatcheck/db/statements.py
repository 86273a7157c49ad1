"""Loads SQL statements from files. Each file states its reason in its header."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT

_INCLUDE: Final = re.compile(r"/\* include (\S+)\.sql \*/")
_UPSTREAM_ENDPOINT: Final = "/* upstream endpoint */"
"""A placeholder for the name of the one endpoint that statements know."""


def statements(package: str) -> Callable[[str], str]:
    """A loader for the statements of ``package``: ``sql("jobs/submit")`` reads ``jobs/submit.sql``,
    without comments, with the fragments that it includes.

    A fragment of another package is named with it: ``/* include coatcheck.core:jobs/view.sql */``.
    """

    def sql(name: str) -> str:
        return _statement(package, name)

    return sql


@cache
def _statement(package: str, name: str) -> str:
    return read_sql(resources.files(package).joinpath(f"{name}.sql"), package)


def read_sql(file: Traversable, package: str) -> str:
    """The statements of a file, without comments, with the fragments that they include."""
    text = file.read_text(encoding="utf-8")
    code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
    code = code.replace(_UPSTREAM_ENDPOINT, f"'{UPSTREAM_ENDPOINT}'")

    def included(found: re.Match[str]) -> str:
        other, _, fragment = found[1].rpartition(":")
        return _statement(f"{other}.sql" if other else package, fragment).strip()

    return _INCLUDE.sub(included, code)
