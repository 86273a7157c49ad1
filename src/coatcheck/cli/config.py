"""``coatcheck config``: which server commands talk to, and who says so."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from coatcheck.cli.console import out, warn
from coatcheck.cli.errors import reporting_errors
from coatcheck.cli.profiles import Configuration, read_configuration
from coatcheck.cli.remote import Place, Server, look

app: Final = typer.Typer(
    name="config",
    no_args_is_help=True,
    help="Show which server commands talk to, and where that is said.",
)


@app.callback()
def group() -> None:
    """Show which server commands talk to, and where that is said."""


@app.command()
@reporting_errors
def show(
    url: Annotated[str | None, typer.Option(help="As a command would be given it.")] = None,
    org: Annotated[str | None, typer.Option(help="As a command would be given it.")] = None,
    profile: Annotated[
        str | None, typer.Option(metavar="NAME", help="As a command would be given it.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="As a command would be given it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the server, the organisation and the key that a command would use, and why.

    Of the key only its id is shown.
    """
    configuration = read_configuration()
    server = look(Place(url=url, org=org, profile=profile, data=data), configuration)
    _warn_of_readers(configuration)
    if as_json:
        typer.echo(json.dumps(_document(server, configuration)))
        return
    names = ", ".join(configuration.profiles) or "none"
    state = f"profiles: {names}" if configuration.exists else "not there"
    for name, value, source in (
        ("server", server.url, server.url_from),
        ("organisation", server.org or "the key's own", server.org_from),
        ("key", shown_key(server.token), server.token_from),
        ("file", str(configuration.path), state),
    ):
        out.print(f"{name:<14}{value}  ", markup=False, end="")
        out.print(f"({source})", style="dim", markup=False)


def shown_key(token: str | None) -> str:
    """A key without its secret; of a token, nothing."""
    if token is None:
        return "none"
    kind, _, rest = token.partition("_")
    return f"{kind}_{rest.partition('_')[0]}_..." if kind == "cck" else "a token"


def _document(server: Server, configuration: Configuration) -> dict[str, Any]:
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
        warn(f"others may read {configuration.path}, which holds a key: chmod 600 it")
