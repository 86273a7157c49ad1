"""``coatcheck services`` lists the endpoints that workers publish, and removes old ones;
``coatcheck secrets`` re-encrypts the secrets of registered services."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.table import Table
from rich.text import Text

from coatcheck.cli.command_errors import EXIT_FAILED, Misconfigured, reporting_errors
from coatcheck.cli.console import out, say, show_table
from coatcheck.cli.data_dir import DataOption, settings_for
from coatcheck.cli.database import on_database
from coatcheck.cli.options import JsonOption
from coatcheck.core.queries import services as service_store
from coatcheck.core.service_secrets import Resealer, SealingState
from coatcheck.db.connection import Connection
from coatcheck.domain.catalogue import PublishedDefinition, by_endpoint, parse_name
from coatcheck.domain.errors import NotFound
from coatcheck.encoding import encode

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


secrets: Final = typer.Typer(
    name="secrets",
    no_args_is_help=True,
    help="Re-encrypt the secrets of services with another key.",
)


@secrets.callback()
def _group() -> None:
    """Re-encrypt the secrets of services with another key."""


@secrets.command()
@reporting_errors
def reseal(as_json: JsonOption = False, data: DataOption = None) -> None:
    """Re-encrypt all secrets of services with the first key in COATCHECK_SECRET_KEYS.

    Servers and workers do the same within half a minute; this command does it at
    once and reports what is left. Exit code 1 if secrets are left: a key is missing,
    or a service must be registered again.
    """
    resealed, state = asyncio.run(_reseal(data))
    if as_json:
        typer.echo(
            encode(
                {
                    "resealed": resealed,
                    "current": state.current,
                    "old": state.old,
                    "locked": dict(state.locked),
                    "plain": state.plain,
                }
            )
        )
    else:
        out.print(f"Re-encrypted: {resealed}. Encrypted with the first key: {state.current}.")
        if state.is_done:
            out.print("No other key is needed.")
        for key_id, secrets in state.locked.items():
            out.print(f"Encrypted with the key {key_id}, which is not set: {secrets}.")
        if state.old:
            out.print(f"Cannot be decrypted: {state.old}. Register their services again.")
    if not state.is_done:
        raise typer.Exit(EXIT_FAILED)


async def _reseal(data: Path | None) -> tuple[int, SealingState]:
    settings = settings_for(data)
    db = Connection(settings.database_url, name="reseal")
    try:
        resealer = Resealer(settings, db)
        if not resealer.sealer.key_ids:
            raise Misconfigured(
                "COATCHECK_SECRET_KEYS is not set\nIts first key encrypts the secrets."
            )
        resealed = await resealer.reseal()
        while sealed := await resealer.seal_plain():
            resealed += sealed
        return resealed, await resealer.state()
    finally:
        await db.close()
