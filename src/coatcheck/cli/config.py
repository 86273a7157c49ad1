"""``coatcheck config`` shows which server commands use, and where that is configured;
``coatcheck completion`` prints shell completion scripts."""

from __future__ import annotations

import json
import os
import stat
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]

from coatcheck.cli.app import COMPLETE_VARIABLE
from coatcheck.cli.command_errors import reporting_errors
from coatcheck.cli.console import out, warn
from coatcheck.cli.server_address import (
    Configuration,
    ServerConfig,
    ServerOptions,
    look,
    read_configuration,
)

app: Final = typer.Typer(
    name="config",
    no_args_is_help=True,
    help="Show which server commands use, and where that is configured.",
)


@app.callback()
def group() -> None:
    """Show which server commands use, and where that is configured."""


@app.command()
@reporting_errors
def show(
    url: Annotated[str | None, typer.Option(help="As in other commands.")] = None,
    org: Annotated[str | None, typer.Option(help="As in other commands.")] = None,
    profile: Annotated[
        str | None, typer.Option(metavar="NAME", help="As in other commands.")
    ] = None,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="As in other commands.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the server, organisation and API key that commands use, and where each is set.

    Only the ID of the key is shown.
    """
    configuration = read_configuration()
    server = look(ServerOptions(url=url, org=org, profile=profile, data=data), configuration)
    _warn_of_readers(configuration)
    if as_json:
        typer.echo(json.dumps(_document(server, configuration)))
        return
    names = ", ".join(configuration.profiles) or "none"
    state = f"profiles: {names}" if configuration.exists else "does not exist"
    is_key_set = server.token is not None
    for name, value, source in (
        ("server:", server.url, server.url_from),
        ("organisation:", server.org or "that of the key", server.org_from if server.org else ""),
        ("key:", shown_key(server.token), server.token_from if is_key_set else ""),
        ("file:", str(configuration.path), state),
    ):
        out.print(f"{name:<15}{value}", markup=False, end="")
        out.print(f"  ({source})" if source else "", style="dim", markup=False)


def shown_key(token: str | None) -> str:
    """A key without its secret; nothing of a token."""
    if token is None:
        return "not set"
    kind, _, rest = token.partition("_")
    return f"{kind}_{rest.partition('_')[0]}_..." if kind == "cck" else "a token"


def _document(server: ServerConfig, configuration: Configuration) -> dict[str, Any]:
    return {
        "url": server.url,
        "url_from": server.url_from,
        "org": server.org,
        "org_from": server.org_from,
        "key": None if server.token is None else shown_key(server.token),
        "key_from": server.token_from,
        "file": str(configuration.path),
        "file_exists": configuration.exists,
        "default_profile": configuration.default,
        "profiles": list(configuration.profiles),
    }


def _warn_of_readers(configuration: Configuration) -> None:
    if not any(profile.api_key for profile in configuration.profiles.values()):
        return
    mode = stat.S_IMODE(os.stat(configuration.path).st_mode)  # noqa: PTH116 - follows links, too
    if mode & 0o077:
        warn(
            f"{configuration.path} contains a key, and other users can read it; run chmod 600 on it"
        )


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
