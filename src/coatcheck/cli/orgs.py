"""``coatcheck orgs``: manages the organisations in the database."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

import typer
from rich.table import Table
from rich.text import Text

from coatcheck.cli import options
from coatcheck.cli.command_errors import Misconfigured, reporting_errors
from coatcheck.cli.console import say, show_table
from coatcheck.cli.data_dir import DataOption, settings_for
from coatcheck.cli.database import on_database
from coatcheck.cli.options import JsonOption
from coatcheck.core.queries import tenants
from coatcheck.domain.errors import NotFound
from coatcheck.domain.service_definition import TIMEOUT_SECONDS_MAX
from coatcheck.domain.tenants import ORG_ID_ALLOWED, Org, OrgLimits, RateLimit, is_org_id

app: Final = typer.Typer(
    name="orgs", no_args_is_help=True, help="Create, limit and list organisations."
)

OrgArgument = Annotated[str, typer.Argument(metavar="ORG", help="The organisation ID.")]
RateOption = Annotated[
    RateLimit | None,
    typer.Option(
        parser=options.rate,
        metavar="N/SECONDS",
        help="Rate limit over all keys: N requests per SECONDS.",
    ),
]
BacklogOption = Annotated[
    int | None, typer.Option(min=0, help="Maximum number of jobs that have not started.")
]

TimeoutOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=TIMEOUT_SECONDS_MAX,
        metavar="SECONDS",
        help="Longest timeout that services it registers may set. "
        "Default: COATCHECK_CALL_TIMEOUT_SECONDS_MAX.",
    ),
]


@app.command()
@reporting_errors
def create(
    org: OrgArgument,
    name: Annotated[str | None, typer.Option(help="Display name. Default: the ID.")] = None,
    rate: RateOption = None,
    backlog: BacklogOption = None,
    timeout_max: TimeoutOption = None,
    as_json: JsonOption = False,
    data: DataOption = None,
) -> None:
    """Create an organisation, with the workspace `default`."""
    if not is_org_id(org):
        raise Misconfigured(f"{org!r} is not a valid organisation ID\nAllowed: {ORG_ID_ALLOWED}.")
    limits = OrgLimits(rate, backlog, timeout_max)
    created = on_database(
        settings_for(data), lambda line: tenants.create_org(line, org, name or org, limits)
    )
    if created is None:
        raise Misconfigured(f"organisation {org!r} already exists")
    if as_json:
        typer.echo(json.dumps(_described(created)))
    else:
        say(f"created organisation {org}")


@app.command()
@reporting_errors
def limit(
    org: OrgArgument,
    rate: RateOption = None,
    backlog: BacklogOption = None,
    timeout_max: TimeoutOption = None,
    as_json: JsonOption = False,
    data: DataOption = None,
) -> None:
    """Set an organisation's limits.

    An omitted limit is removed: the deployment's settings apply.
    """
    limits = OrgLimits(rate, backlog, timeout_max)
    changed = on_database(settings_for(data), lambda line: tenants.limit_org(line, org, limits))
    if changed is None:
        raise NotFound(f"organisation {org!r} not found\nRun `coatcheck orgs list` to see all.")
    if as_json:
        typer.echo(json.dumps(_described(changed)))
    else:
        say(f"set limits of {org}")


@app.command("list")
@reporting_errors
def list_all(as_json: JsonOption = False, data: DataOption = None) -> None:
    """List the organisations."""
    orgs = on_database(settings_for(data), tenants.list_orgs)
    if as_json:
        for org in orgs:
            typer.echo(json.dumps(_described(org)))
        return
    table = Table(
        "org", "name", "subscription", "rate", "backlog", "timeout", "created", show_edge=False
    )
    for org in orgs:
        cells = (
            org.org_id,
            org.name,
            org.subscription,
            options.shown(org.limits.rate),
            "-" if org.limits.backlog_max is None else str(org.limits.backlog_max),
            "-" if org.limits.timeout_max is None else f"{org.limits.timeout_max} s",
            f"{org.created_at:%Y-%m-%d %H:%M}",
        )
        table.add_row(*map(Text, cells))
    show_table(table)


def _described(org: Org) -> dict[str, Any]:
    rate = org.limits.rate
    return {
        "id": org.org_id,
        "name": org.name,
        "subscription": org.subscription,
        "rate_limit": rate and {"requests": rate.requests, "seconds": rate.seconds},
        "backlog_max": org.limits.backlog_max,
        "timeout_max": org.limits.timeout_max,
        "created_at": org.created_at.isoformat(),
    }
