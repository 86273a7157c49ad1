"""``coatcheck keys``: the API keys of an organisation."""

from __future__ import annotations

import json
import shlex
from datetime import datetime
from typing import Annotated, Any, Final

import typer
from rich.table import Table
from rich.text import Text

from coatcheck.cli import quantities
from coatcheck.cli.console import err, out, say
from coatcheck.cli.data_dir import DataOption, settings_for
from coatcheck.cli.database import on_database
from coatcheck.cli.errors import Misconfigured, reporting_errors
from coatcheck.domain import api_keys
from coatcheck.domain.errors import NotFound
from coatcheck.domain.identity import USER_SCOPES, RateLimit, Scope
from coatcheck.domain.limits import API_KEY_NAME_CHARACTERS_MAX
from coatcheck.domain.tenants import DEFAULT_ORG, USER_ID_ALLOWED, ApiKey, is_user_id
from coatcheck.store import tenants
from coatcheck.store.line import Line

_PAGE_ROWS: Final = 200
_ID_CHARACTERS: Final = 26
_DAY_CHARACTERS: Final = 10

app: Final = typer.Typer(
    name="keys", no_args_is_help=True, help="Create, list and revoke API keys."
)

OrgOption = Annotated[str, typer.Option(help="The organisation.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
@reporting_errors
def create(
    org: OrgOption = DEFAULT_ORG,
    user: Annotated[str, typer.Option(help="Whose jobs it hands in and sees.")] = "dev",
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
    json_wanted: JsonOption = False,
    data: DataOption = None,
) -> None:
    """Create a key and print it. It is not shown again: only a digest of it is stored."""
    if not is_user_id(user):
        raise Misconfigured(f"{user!r} cannot be a user's id\nAllowed: {USER_ID_ALLOWED}.")
    if len(name) > API_KEY_NAME_CHARACTERS_MAX:
        raise Misconfigured(f"a key's name has at most {API_KEY_NAME_CHARACTERS_MAX} characters")
    settings = settings_for(data)
    key = api_keys.mint()
    digest = key.digest(settings.require("key_pepper").encode())
    created = on_database(
        settings,
        lambda line: tenants.create_key(
            line,
            org,
            key.key_id,
            user=user,
            name=name,
            digest=digest,
            scopes=frozenset(scope) if scope else USER_SCOPES,
            rate=rate,
            seconds_to_live=expires,
        ),
    )
    if created is None:
        raise NotFound(f"there is no organisation {org!r}\n`coatcheck orgs create {org}` makes it.")
    if json_wanted:
        typer.echo(json.dumps(_described(created) | {"key": key.text}))
    else:
        err.print("The key, for the only time:", style="dim")
        typer.echo(key.text)


@app.command("list")
@reporting_errors
def list_all(
    org: OrgOption = DEFAULT_ORG, json_wanted: JsonOption = False, data: DataOption = None
) -> None:
    """List an organisation's keys, the revoked ones included. Secrets are not stored anywhere."""

    async def all_pages(line: Line) -> list[ApiKey]:
        keys: list[ApiKey] = []
        while True:
            after = keys[-1].key_id if keys else None
            page = await tenants.list_keys(line, org, after=after, limit=_PAGE_ROWS)
            keys += page
            if len(page) < _PAGE_ROWS:
                return keys

    keys = on_database(settings_for(data), all_pages)
    if json_wanted:
        typer.echo(json.dumps([_described(key) for key in keys]))
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))  # to fit 80 columns
    table.add_column("id", no_wrap=True, min_width=_ID_CHARACTERS)  # to be copied whole
    for heading in ("user", "name", "scopes"):
        table.add_column(heading, overflow="fold")
    table.add_column("rate", no_wrap=True)
    for heading in ("created", "ends"):
        table.add_column(heading, no_wrap=True, min_width=_DAY_CHARACTERS)
    for key in keys:
        cells = (
            key.key_id,
            key.user,
            key.name,
            " ".join(sorted(key.scopes)),
            quantities.shown(key.rate),
            _day(key.created_at),
            "revoked" if key.revoked_at else _day(key.expires_at),
        )
        table.add_row(*map(Text, cells))
    out.print(table, soft_wrap=False)


@app.command()
@reporting_errors
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's id, or the key itself.")],
    org: OrgOption = DEFAULT_ORG,
    data: DataOption = None,
) -> None:
    """Revoke a key for good; every server refuses it within a second."""
    whole = api_keys.parse(key_id.encode())
    wanted = key_id if whole is None else whole.key_id
    if not on_database(settings_for(data), lambda line: tenants.revoke(line, org, wanted)):
        raise NotFound(
            f"there is no key of that id in the organisation {org!r}\n"
            f"`coatcheck keys list --org {shlex.quote(org)}` shows which there are."
        )
    say(f"revoked the key {wanted}")


def _day(at: datetime | None) -> str:
    """The day: `--json` has the moment."""
    return "never" if at is None else f"{at:%Y-%m-%d}"


def _described(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.key_id,
        "org": key.org,
        "user": key.user,
        "name": key.name,
        "scopes": sorted(key.scopes),
        "rate_limit": key.rate and {"requests": key.rate.requests, "seconds": key.rate.seconds},
        "created_at": key.created_at.isoformat(),
        "expires_at": key.expires_at and key.expires_at.isoformat(),
        "revoked_at": key.revoked_at and key.revoked_at.isoformat(),
    }
