"""Takes directives out of C# source where they keep it from being parsed.

``#if`` may stand in the middle of a declaration or an expression, where no grammar expects it. Of
its branches the first is kept: which of them is compiled, the source does not say.
"""

from __future__ import annotations

import re
from typing import Final

_DIRECTIVE: Final = re.compile(rb"^[ \t]*#[ \t]*(\w+)")


def without_directives(source: bytes) -> bytes:
    """The source with as many lines, those of directives and of all but first branches empty."""
    kept: list[bytes] = []
    first_branch: list[bool] = []
    for line in source.split(b"\n"):
        directive = _DIRECTIVE.match(line)
        if directive is None:
            kept.append(line if all(first_branch) else b"")
            continue
        kept.append(b"")
        match directive[1]:
            case b"if":
                first_branch.append(True)
            case b"elif" | b"else" if first_branch:
                first_branch[-1] = False
            case b"endif" if first_branch:
                first_branch.pop()
    return b"\n".join(kept)
