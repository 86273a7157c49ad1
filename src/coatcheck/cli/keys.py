"""``coatcheck keys`` manages the API keys of an organisation, on a server or in the database, and
``coatcheck token`` prints a token to try things as a user.

The database is for the first key: a server would require a key to create one.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, Protocol

import typer
from rich.table import Table
from rich.text import Text

from coatcheck.cli import data_dir, options
from coatcheck.cli.command_errors import Misconfigured, reporting_errors
from coatcheck.cli.console import err, say, show_table
from coatcheck.cli.data_dir import ADDRESS, DEV_KEY, JWT_SECRET, DataOption, settings_for
from coatcheck.cli.options import JsonOption
from coatcheck.cli.server_address import (
    NOBODY,
    ORG_VARIABLE,
    ServerConfig,
    ServerOptions,
    look,
    read_configuration,
    ready,
    with_server_options,
)
from coatcheck.client import ApiKey, AuthenticationError, Client, KeyRate, NotFoundError
from coatcheck.domain import tenants
from coatcheck.domain.errors import NotFound
from coatcheck.domain.limits import API_KEY_NAME_CHARACTERS_MAX
from coatcheck.domain.tenants import (
    DEFAULT_ORG,
    ORG_ID_ALLOWED,
    USER_ID_ALLOWED,
    RateLimit,
    Scope,
    is_org_id,
    is_user_id,
)
from coatcheck.encoding import encode

DATABASE_VARIABLE: Final = "COATCHECK_DATABASE_URL"


class Register(Protocol):
    """The keys of one organisation."""

    @property
    def org(self) -> str: ...

    def create(
        self,
        name: str,
        *,
        user: str | None,
        scopes: Iterable[str] | None,
        expires_in_seconds: int | None,
        rate_limit: KeyRate | None,
    ) -> ApiKey:
        """Create a key; returns it with its secret."""

    def list_all(self) -> list[ApiKey]: ...

    def revoke(self, key_id: str) -> bool:
        """Revoke a key; returns whether it exists."""


def register_at(options: ServerOptions) -> Register:
    """The register that the options, the environment and this folder select.

    If a key is configured, it is a server, called with that key. Otherwise it is the database in
    COATCHECK_DATABASE_URL. Without that it is the ``up`` of this folder: its server if its dev-key
    file exists, else its database.
    """
    server = look(options, read_configuration())
    folder, _ = data_dir.choose(options.data)
    database_is_named = options.data is None and bool(os.environ.get(DATABASE_VARIABLE))
    key_is_found = options.data is None and server.token_from == str(folder / DEV_KEY)
    server_is_named = server.url_from not in (NOBODY, str(folder / ADDRESS))
    if (
        (server.token is not None and not (key_is_found and database_is_named))
        or options.url is not None
        or options.profile is not None
        or not (database_is_named or (folder.is_dir() and not server_is_named))
    ):
        return ServedKeys(ready(options, server))
    # Imported late: talking to a server needs no database code.
    from coatcheck.cli.stored_keys import StoredKeys

    org = options.org or os.environ.get(ORG_VARIABLE) or DEFAULT_ORG
    return StoredKeys(data_dir.settings_for(options.data), org)


class ServedKeys:
    """The keys on a server, over its public API."""

    def __init__(self, at: ServerConfig) -> None:
        assert at.org is not None, "it is ready"
        self.org = at.org
        self._at = at

    def create(
        self,
        name: str,
        *,
        user: str | None,
        scopes: Iterable[str] | None,
        expires_in_seconds: int | None,
        rate_limit: KeyRate | None,
    ) -> ApiKey:
        with self._connected() as client:
            return client.api_keys.create(
                name,
                user=user,
                scopes=scopes,
                expires_in_seconds=expires_in_seconds,
                rate_limit=rate_limit,
            )

    def list_all(self) -> list[ApiKey]:
        with self._connected() as client:
            return list(client.api_keys.list_all())

    def revoke(self, key_id: str) -> bool:
        with self._connected() as client:
            try:
                client.api_keys.revoke(key_id)
            except NotFoundError:
                return False
        return True

    @contextmanager
    def _connected(self) -> Iterator[Client]:
        try:
            with self._at.client() as client:
                yield client
        except AuthenticationError:
            if Path(self._at.token_from).name != DEV_KEY:
                raise
            raise Misconfigured(
                f"the server refuses the key in {self._at.token_from}: it was revoked\n"
                "Delete that file, then run `coatcheck keys create` or restart `coatcheck up` to "
                "get a new key."
            ) from None


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
            parser=options.rate, metavar="N/SECONDS", help="Rate limit: N requests per SECONDS."
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


_ALGORITHM: Final = "HS256"


@reporting_errors
def token(
    user: Annotated[str, typer.Option(help="The user that the token is for.")],
    org: Annotated[str, typer.Option(help="The organisation of the user.")] = DEFAULT_ORG,
    expires: Annotated[
        int,
        typer.Option(
            parser=options.seconds, metavar="SPAN", help="Lifetime, such as 30d, 12h or 90m."
        ),
    ] = "12h",  # type: ignore[assignment]
    as_json: JsonOption = False,
    data: DataOption = None,
) -> None:
    """Print a signed token for a user.

    It is signed with COATCHECK_JWT_SECRET, or with the secret of `coatcheck up`.
    """
    if not is_user_id(user):
        raise Misconfigured(f"{user!r} is not a valid user ID\nAllowed: {USER_ID_ALLOWED}.")
    if not is_org_id(org):
        raise Misconfigured(f"{org!r} is not a valid organisation ID\nAllowed: {ORG_ID_ALLOWED}.")
    settings = settings_for(data)
    if not settings.jwt_secret:
        raise Misconfigured(_no_secret(data))
    expires_at = int(time.time()) + expires
    claims = {
        "iss": settings.require("jwt_issuer"),
        "aud": settings.require("jwt_audience"),
        "sub": user,
        "org": org,
        "exp": expires_at,
    }
    import jwt  # slow to import

    signed = jwt.encode(claims, settings.require("jwt_secret"), _ALGORITHM)
    if as_json:
        ends = datetime.fromtimestamp(expires_at, UTC)
        shown = {"token": signed, "org_id": org, "user": user, "expires_at": ends}
        typer.echo(encode(shown))
    else:
        typer.echo(signed)


def _no_secret(data: Path | None) -> str:
    """Why there is no signing secret, and what to do about it."""
    all_three = "COATCHECK_JWT_SECRET, COATCHECK_JWT_ISSUER and COATCHECK_JWT_AUDIENCE"
    if data is not None:
        why = f"{data} has no {JWT_SECRET}: `coatcheck up` has not run on it"
        hint = f"Run `coatcheck up --data {data}` to create one, or set {all_three}."
    else:
        why = "this folder has no data of `coatcheck up`"
        hint = f"Name its data folder with --data, or set {all_three}."
    return f"no signing secret: {why}\n{hint}"
