"""Generates the settings reference page from the declarations.

``python -m coatcheck.settings.reference > docs/reference/settings.md`` regenerates it.
"""

from __future__ import annotations

import sys
from typing import Final

from coatcheck.settings.declaration import Setting
from coatcheck.settings.settings import SETTINGS


def markdown() -> str:
    """The settings reference page."""
    return "\n".join([_PAGE_HEAD, *map(_section, SETTINGS.values())])


def _section(setting: Setting) -> str:
    lines = [
        f"## `{setting.variable}`",
        "",
        setting.meaning,
        "",
        f"- Allowed: {setting.allowed}",
        f"- Default: {setting.shown_default}",
        *(["- Never shown in a log line or an error."] if setting.secret else []),
        "",
    ]
    return "\n".join(lines)


_PAGE_HEAD: Final = """\
# Settings

<!-- Generated from src/coatcheck/settings by `python -m coatcheck.settings.reference`. -->

Every process reads these environment variables once, when it starts. If a value is wrong, the
process stops with a message that lists every error. An empty variable counts as unset.
"""


if __name__ == "__main__":
    sys.stdout.write(markdown())
