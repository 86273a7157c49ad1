"""``coatcheck completion``: prints shell completion scripts."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]

from coatcheck.cli.app import COMPLETE_VARIABLE
from coatcheck.cli.errors import reporting_errors


class Shell(str, Enum):  # noqa: UP042 - typer shows the values of these
    """The supported shells."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


@reporting_errors
def completion(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print a completion script for a shell.

    bash: add `eval "$(coatcheck completion bash)"` to ~/.bashrc.
    zsh: add the same with zsh to ~/.zshrc, after compinit.
    fish: coatcheck completion fish > ~/.config/fish/completions/coatcheck.fish
    """
    typer.echo(
        get_completion_script(
            prog_name="coatcheck", complete_var=COMPLETE_VARIABLE, shell=shell.value
        )
    )
