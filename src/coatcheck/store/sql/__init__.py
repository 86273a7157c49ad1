"""Reads the SQL files. Each is source code with its reason in its header."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_INCLUDE = re.compile(r"/\* include (\S+) \*/")


@cache
def sql(name: str) -> str:
    """The text of ``sql/<name>.sql``, without comments, with the fragments it includes."""
    text = resources.files(__package__).joinpath(f"{name}.sql").read_text(encoding="utf-8")
    code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
    return _INCLUDE.sub(lambda found: sql(found[1].removesuffix(".sql")).strip(), code)


def migrations() -> list[tuple[str, str]]:
    """The schema steps in order, as (name, statements)."""
    files = resources.files(__package__).joinpath("schema").iterdir()
    steps = sorted(file.name.removesuffix(".sql") for file in files if file.name.endswith(".sql"))
    return [(step, sql(f"schema/{step}")) for step in steps]
