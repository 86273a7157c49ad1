"""The variables that a shell has set when it has run something."""

from __future__ import annotations

import os
import re
import subprocess


def assigned(script: str) -> dict[str, str]:
    """What a script sets, exported or not; that of ``NAME=value command`` without the command."""
    settings = re.sub(
        r"^((?:[A-Z_]+=\S+ )+)(?:make|coatcheck) .*$", r"\1", script, flags=re.MULTILINE
    )
    shell = ["bash", "-c", f"set -aeu\n{settings}\nenv -0"]
    path = {"PATH": os.environ["PATH"]}
    shown = subprocess.run(shell, env=path, capture_output=True, text=True, check=True).stdout
    variables = dict(line.split("=", 1) for line in shown.rstrip("\0").split("\0"))
    return {name: variables[name] for name in variables if re.search(rf"\b{name}=", script)}
