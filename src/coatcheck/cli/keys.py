"""``coatcheck keys``: manages the API keys of an organisation."""

from __future__ import annotations

import shlex
from datetime import datetime
from typing import Annotated, Final

import typer
from rich.table import Table
from rich.text import Text

from coatcheck.cli import options
from coatcheck.cli.console import err, say, show_table
from coatcheck.cli.errors import Misconfigured
from coatcheck.cli.key_registers import register_at
from coatcheck.cli.options import JsonOption
from coatcheck.cli.server_address import ServerOptions
from coatcheck.cli.server_options import with_server_options
from coatcheck.client import ApiKey, KeyRate
from coatcheck.domain import tenants
from coatcheck.domain.errors import NotFound
from coatcheck.domain.limits import API_KEY_NAME_CHARACTERS_MAX
from coatcheck.domain.tenants import USER_ID_ALLOWED, RateLimit, Scope, is_user_id
from coatcheck.encoding import encode

_ID_CHARACTERS: Final = 26
_DAY_CHARACTERS: Final = 10

app: Final = typer.Typer(
    name="keys",
    no_args_is_help=True,
    help="Create, list and revoke API keys.\n\n"
    "These commands call the server with an API key that has the scope admin. Without any API "
    "key, they use the database in COATCHECK_DATABASE_URL, or that of the data folder of "
    "`coatcheck up`.",
)


@app.command()
@with_server_options
def create(
    options: ServerOptions,
    user: Annotated[
        str | None, typer.Option(help="The user that the key acts for. Default: you.")
    ] = None,
    name: Annotated[str, typer.Option(help="A name to recognise the key by.")] = "",
    scope: Annotated[
        list[Scope] | None,
        typer.Option(help="What the key allows. Repeatable. Default: submit and read."),
    ] = None,
    expires: Annotated[
        int | None,
        typer.Option(
            parser=options.seconds,
            metavar="SPAN",
            help="Lifetime, such as 30d, 12h or 90m. Default: no expiry.",
        ),
    ] = None,
    rate: Annotated[
        RateLimit | None,
        typer.Option(
            parser=options.rate,
            metavar="N/SECONDS",
            help="Rate limit: N requests per SECONDS.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Create a key and print it. It cannot be shown again: only a digest is stored.

    To create the first key, without any API key, it writes to the database directly.
    """
    if user is not None and not is_user_id(user):
        raise Misconfigured(f"{user!r} is not a valid user ID\nAllowed: {USER_ID_ALLOWED}.")
    if len(name) > API_KEY_NAME_CHARACTERS_MAX:
        raise Misconfigured(f"--name is too long: at most {API_KEY_NAME_CHARACTERS_MAX} characters")
    created = register_at(options).create(
        name,
        user=user,
        scopes=scope,
        expires_in_seconds=expires,
        rate_limit=None if rate is None else KeyRate(rate.requests, rate.seconds),
    )
    if as_json:
        typer.echo(encode(created))
    else:
        err.print("API key (shown only once):", style="dim")
        typer.echo(created.key)


@app.command("list")
@with_server_options
def list_all(options: ServerOptions, as_json: JsonOption = False) -> None:
    """List an organisation's keys, including revoked ones, without their secrets."""
    keys = register_at(options).list_all()
    if as_json:
        for key in keys:
            typer.echo(encode(key))
        return
    show_table(table(keys))


def table(keys: list[ApiKey]) -> Table:
    """The keys as a table that fits 80 columns."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    shown.add_column(
        "id", no_wrap=True, min_width=_ID_CHARACTERS
    )  # never cut, so that it can be copied
    for heading in ("user", "name", "scopes"):
        shown.add_column(heading, overflow="fold")
    shown.add_column("rate", no_wrap=True)
    for heading in ("created", "expires"):
        shown.add_column(heading, no_wrap=True, min_width=_DAY_CHARACTERS)
    for key in keys:
        cells = (
            key.id,
            key.user,
            key.name,
            " ".join(key.scopes),
            options.shown(key.rate_limit),
            _day(key.created_at),
            "revoked" if key.revoked_at else _day(key.expires_at),
        )
        shown.add_row(*map(Text, cells))
    return shown


@app.command()
@with_server_options
def revoke(
    options: ServerOptions,
    key_id: Annotated[
        str, typer.Argument(metavar="ID", help="The ID of the key, or the key itself.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Revoke a key permanently. Every server refuses it within a second."""
    whole = tenants.parse(key_id.encode())
    wanted = key_id if whole is None else whole.key_id
    register = register_at(options)
    if not register.revoke(wanted):
        raise NotFound(
            f"key not found in the organisation {register.org!r}\n"
            f"Run `coatcheck keys list --org {shlex.quote(register.org)}` to see its keys."
        )
    if as_json:
        typer.echo(encode({"id": wanted, "revoked": True}))
    else:
        say(f"revoked key {wanted}")


def _day(at: datetime | None) -> str:
    """The date; --json has the exact time."""
    return "never" if at is None else f"{at:%Y-%m-%d}"
