"""``coatcheck services``: what workers publish, and what is left of workers that have gone."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, Final

import typer
from rich.table import Table
from rich.text import Text

from coatcheck.cli.common_options import JsonOption
from coatcheck.cli.console import say, show_table
from coatcheck.cli.data_dir import DataOption, settings_for
from coatcheck.cli.database import on_database
from coatcheck.cli.errors import EXIT_FAILED, Misconfigured, reporting_errors
from coatcheck.domain.errors import NotFound
from coatcheck.domain.publications import PublishedDefinition, by_endpoint, parse_name
from coatcheck.store import services as service_store

app: Final = typer.Typer(
    name="services",
    no_args_is_help=True,
    help="List what workers publish; forget endpoints without a worker.",
)


@app.command("list")
@reporting_errors
def list_all(json_wanted: JsonOption = False, data: DataOption = None) -> None:
    """List the endpoints that workers publish, and those whose workers have gone."""
    published = on_database(settings_for(data), service_store.list_published)
    endpoints = by_endpoint(published)
    if json_wanted:
        for name, definitions in endpoints:
            typer.echo(json.dumps(_described(name, definitions)))
        return
    table = Table("endpoint", "call", "lane", "workers", "", show_edge=False)
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
            help="A service, a version or an endpoint: docs, docs.v2, docs.v2.post__count.",
        ),
    ],
    json_wanted: JsonOption = False,
    data: DataOption = None,
) -> None:
    """Take endpoints without a live worker out of the catalogue. Exit code 1 if none was.

    Calls of them are then answered 404. Jobs that were accepted stay, and wait for a worker; a
    worker that publishes the endpoint brings it back. What a live worker publishes is not
    forgotten, nor that of one that fell silent lately and may come back.
    """
    named = parse_name(name)
    if named is None:
        raise Misconfigured(
            f"{name!r} names no endpoint\nA service, a version or an endpoint is named: docs, "
            "docs.v2, docs.post__count, docs.v2.post__count."
        )
    result = on_database(settings_for(data), lambda line: service_store.forget(line, *named))
    if not result.forgotten and not result.served:
        raise NotFound(
            f"workers publish no {name!r}\n`coatcheck services list` shows what they do."
        )
    if json_wanted:
        typer.echo(json.dumps({"forgotten": result.forgotten, "served": result.served}))
    for each in () if json_wanted else result.forgotten:
        say(f"forgot {each}")
    for each in () if json_wanted else result.served:
        say(f"kept {each}: a worker publishes it that lives, or fell silent lately")
    if not result.forgotten:
        raise typer.Exit(EXIT_FAILED)


def _workers(definitions: list[PublishedDefinition]) -> int:
    return len({boot for each in definitions for boot in each.boots})


def _live(definitions: list[PublishedDefinition]) -> int:
    """How many different ones live workers publish."""
    live = [each.spec for each in definitions if each.is_live]
    return sum(spec not in live[:at] for at, spec in enumerate(live))


def _gone_at(definitions: list[PublishedDefinition]) -> datetime | None:
    return None if definitions[0].is_live else definitions[0].unserved_since


def _remark(definitions: list[PublishedDefinition]) -> str:
    if not definitions[0].is_live:
        since = _gone_at(definitions)
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
        "unserved_since": _moment(_gone_at(definitions)),
    }


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
