"""``coatcheck services``: lists the endpoints that workers publish, and removes old ones."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, Final

import typer
from rich.table import Table
from rich.text import Text

from coatcheck.cli.console import say, show_table
from coatcheck.cli.data_dir import DataOption, settings_for
from coatcheck.cli.database import on_database
from coatcheck.cli.errors import EXIT_FAILED, Misconfigured, reporting_errors
from coatcheck.cli.options import JsonOption
from coatcheck.core.queries import services as service_store
from coatcheck.domain.catalogue import PublishedDefinition, by_endpoint, parse_name
from coatcheck.domain.errors import NotFound

app: Final = typer.Typer(
    name="services",
    no_args_is_help=True,
    help="List the endpoints that workers publish; remove those without a worker.",
)


@app.command("list")
@reporting_errors
def list_all(as_json: JsonOption = False, data: DataOption = None) -> None:
    """List the endpoints that workers publish or published."""
    published = on_database(settings_for(data), service_store.list_published)
    endpoints = by_endpoint(published)
    if as_json:
        for name, definitions in endpoints:
            typer.echo(json.dumps(_described(name, definitions)))
        return
    table = Table("endpoint", "request", "lane", "workers", "", show_edge=False)
    for name, definitions in endpoints:
        in_force = definitions[0]
        cells = (
            name,
            f"{in_force.spec.method} {in_force.spec.path}",
            in_force.spec.lane.value,
            str(_workers(definitions)),
            _remark(definitions),
        )
        table.add_row(*map(Text, cells))
    show_table(table)


@app.command()
@reporting_errors
def forget(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A service, a version or an endpoint: docs, docs.v2 or docs.v2.post__count.",
        ),
    ],
    as_json: JsonOption = False,
    data: DataOption = None,
) -> None:
    """Remove endpoints without a live worker. Exit code 1 if none was removed.

    Requests to a removed endpoint answer 404. Jobs already accepted stay and wait for
    a worker. A worker that publishes the endpoint brings it back. Endpoints of live
    workers are kept, as are those of workers that went silent recently.
    """
    named = parse_name(name)
    if named is None:
        raise Misconfigured(
            f"{name!r} is not a service or an endpoint\n"
            "Name a service, a version or an endpoint: docs, docs.v2, docs.post__count or "
            "docs.v2.post__count."
        )
    result = on_database(settings_for(data), lambda line: service_store.forget(line, *named))
    if not result.forgotten and not result.served:
        raise NotFound(
            f"no worker publishes {name!r}\nRun `coatcheck services list` to see the endpoints."
        )
    if as_json:
        typer.echo(json.dumps({"forgotten": result.forgotten, "served": result.served}))
    for each in () if as_json else result.forgotten:
        say(f"removed {each}")
    for each in () if as_json else result.served:
        say(f"kept {each}: its worker is alive, or went silent recently")
    if not result.forgotten:
        raise typer.Exit(EXIT_FAILED)


def _workers(definitions: list[PublishedDefinition]) -> int:
    return len({boot for each in definitions for boot in each.boots})


def _live(definitions: list[PublishedDefinition]) -> int:
    """The number of different definitions that live workers publish."""
    live = [each.spec for each in definitions if each.is_live]
    return sum(spec not in live[:at] for at, spec in enumerate(live))


def _unserved_since(definitions: list[PublishedDefinition]) -> datetime | None:
    return None if definitions[0].is_live else definitions[0].unserved_since


def _remark(definitions: list[PublishedDefinition]) -> str:
    if not definitions[0].is_live:
        since = _unserved_since(definitions)
        return "no live worker" + (f" since {since:%Y-%m-%d %H:%M}" if since else "")
    live = _live(definitions)
    return f"{live} different definitions" if live > 1 else ""


def _described(name: str, definitions: list[PublishedDefinition]) -> dict[str, Any]:
    spec = definitions[0].spec
    return {
        "endpoint": name,
        "service": spec.service,
        "version": spec.version,
        "method": spec.method,
        "path": spec.path,
        "lane": spec.lane.value,
        "workers": _workers(definitions),
        "definitions": _live(definitions),
        "published_at": _moment(definitions[0].published_at),
        "unserved_since": _moment(_unserved_since(definitions)),
    }


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
