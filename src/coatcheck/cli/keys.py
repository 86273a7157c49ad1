"""``coatcheck keys``: the API keys of an organisation."""

from __future__ import annotations

import shlex
from datetime import datetime
from typing import Annotated, Final

import typer
from rich.table import Table
from rich.text import Text

from coatcheck.cli import quantities
from coatcheck.cli.common_options import JsonOption
from coatcheck.cli.console import err, say, show_table
from coatcheck.cli.errors import Misconfigured
from coatcheck.cli.key_registers import register_at
from coatcheck.cli.remote import Place
from coatcheck.cli.server_options import on_place
from coatcheck.client import ApiKey, KeyRate
from coatcheck.domain import api_keys
from coatcheck.domain.errors import NotFound
from coatcheck.domain.identity import RateLimit, Scope
from coatcheck.domain.limits import API_KEY_NAME_CHARACTERS_MAX
from coatcheck.domain.tenants import USER_ID_ALLOWED, is_user_id
from coatcheck.encoding import encode

_ID_CHARACTERS: Final = 26
_DAY_CHARACTERS: Final = 10

app: Final = typer.Typer(
    name="keys",
    no_args_is_help=True,
    help="Create, list and revoke API keys.\n\n"
    "A server is asked, with a key that has the scope admin. Where there is no key to present yet, "
    "the database is used: the one that COATCHECK_DATABASE_URL names, or that of the data folder "
    "of `coatcheck up`.",
)


@app.command()
@on_place
def create(
    place: Place,
    user: Annotated[
        str | None, typer.Option(help="Whose jobs it hands in and sees; yours, if left out.")
    ] = None,
    name: Annotated[str, typer.Option(help="What it is for.")] = "",
    scope: Annotated[
        list[Scope] | None,
        typer.Option(help="What it allows; may be given again. By default: submit and read."),
    ] = None,
    expires: Annotated[
        int | None,
        typer.Option(
            parser=quantities.seconds,
            metavar="SPAN",
            help="Such as 30d, 12h, 90m. Never, if left out.",
        ),
    ] = None,
    rate: Annotated[
        RateLimit | None,
        typer.Option(
            parser=quantities.rate,
            metavar="N/SECONDS",
            help="At most N requests in each window of so many seconds.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Create a key and print it. It is not shown again: only a digest of it is stored.

    Without a key to present it is written to the database itself, which makes the first one.
    """
    if user is not None and not is_user_id(user):
        raise Misconfigured(f"{user!r} cannot be a user's id\nAllowed: {USER_ID_ALLOWED}.")
    if len(name) > API_KEY_NAME_CHARACTERS_MAX:
        raise Misconfigured(f"a key's name has at most {API_KEY_NAME_CHARACTERS_MAX} characters")
    created = register_at(place).create(
        name,
        user=user,
        scopes=scope,
        expires_in_seconds=expires,
        rate_limit=None if rate is None else KeyRate(rate.requests, rate.seconds),
    )
    if as_json:
        typer.echo(encode(created))
    else:
        err.print("The key, for the only time:", style="dim")
        typer.echo(created.key)


@app.command("list")
@on_place
def list_all(place: Place, as_json: JsonOption = False) -> None:
    """List an organisation's keys, the revoked ones included. Secrets are not stored anywhere."""
    keys = register_at(place).list_all()
    if as_json:
        for key in keys:
            typer.echo(encode(key))
        return
    show_table(table(keys))


def table(keys: list[ApiKey]) -> Table:
    """The keys as a table that fits 80 columns."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    shown.add_column("id", no_wrap=True, min_width=_ID_CHARACTERS)  # to be copied whole
    for heading in ("user", "name", "scopes"):
        shown.add_column(heading, overflow="fold")
    shown.add_column("rate", no_wrap=True)
    for heading in ("created", "ends"):
        shown.add_column(heading, no_wrap=True, min_width=_DAY_CHARACTERS)
    for key in keys:
        cells = (
            key.id,
            key.user,
            key.name,
            " ".join(key.scopes),
            quantities.shown(key.rate_limit),
            _day(key.created_at),
            "revoked" if key.revoked_at else _day(key.expires_at),
        )
        shown.add_row(*map(Text, cells))
    return shown


@app.command()
@on_place
def revoke(
    place: Place,
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's id, or the key itself.")],
    as_json: JsonOption = False,
) -> None:
    """Revoke a key for good; every server refuses it within a second."""
    whole = api_keys.parse(key_id.encode())
    wanted = key_id if whole is None else whole.key_id
    register = register_at(place)
    if not register.revoke(wanted):
        raise NotFound(
            f"there is no key of that id in the organisation {register.org!r}\n"
            f"`coatcheck keys list --org {shlex.quote(register.org)}` shows which there are."
        )
    if as_json:
        typer.echo(encode({"id": wanted, "revoked": True}))
    else:
        say(f"revoked the key {wanted}")


def _day(at: datetime | None) -> str:
    """The day: `--json` has the moment."""
    return "never" if at is None else f"{at:%Y-%m-%d}"
