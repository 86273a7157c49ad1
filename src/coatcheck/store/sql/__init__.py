"""Reads the SQL files. Each is source code with its reason in its header."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT

_INCLUDE = re.compile(r"/\* include (\S+) \*/")
_UPSTREAM_ENDPOINT: Final = "/* upstream endpoint */"
"""Stands for the name of the one endpoint that statements know."""


@cache
def sql(name: str) -> str:
    """The text of ``sql/<name>.sql``, without comments, with the fragments it includes."""
    return read_sql(resources.files(__package__).joinpath(f"{name}.sql"))


def read_sql(file: Traversable) -> str:
    """The statements of a file, without comments, with the fragments they include."""
    text = file.read_text(encoding="utf-8")
    code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
    code = code.replace(_UPSTREAM_ENDPOINT, f"'{UPSTREAM_ENDPOINT}'")
    return _INCLUDE.sub(lambda found: sql(found[1].removesuffix(".sql")).strip(), code)
