"""The command that runs this installation from another terminal."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path


def own_command() -> str:
    """``coatcheck`` if that is this installation on the PATH, otherwise its full path."""
    script = Path(sys.executable).with_name("coatcheck")
    on_path = shutil.which("coatcheck")
    if on_path is not None and Path(on_path).resolve() == script.resolve():
        return "coatcheck"
    if script.exists():
        return shlex.quote(str(script))
    return f"{shlex.quote(sys.executable)} -m coatcheck.cli"
