"""``coatcheck token``: prints a token to try things as a user."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import jwt
import typer

from coatcheck.cli import options
from coatcheck.cli.data_dir import JWT_SECRET, DataOption, settings_for
from coatcheck.cli.errors import Misconfigured, reporting_errors
from coatcheck.cli.options import JsonOption
from coatcheck.domain.tenants import (
    DEFAULT_ORG,
    ORG_ID_ALLOWED,
    USER_ID_ALLOWED,
    is_org_id,
    is_user_id,
)
from coatcheck.encoding import encode

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
