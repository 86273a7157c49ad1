"""``coatcheck usage``: shows an organisation's usage."""

from __future__ import annotations

import csv
import sys
from datetime import date
from typing import Annotated, Final

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from coatcheck.cli.command_errors import Misconfigured
from coatcheck.cli.console import out, until_nobody_reads
from coatcheck.cli.job_display import span
from coatcheck.cli.options import JsonOption
from coatcheck.cli.server_address import ServerConfig, on_server
from coatcheck.client import UsageDay
from coatcheck.encoding import encode

_NUMBERS: Final = ("jobs", "completed", "failed", "cancelled", "attempts")


def day(text: str) -> date:
    """``2026-01-31``."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter("expected a day such as 2026-01-31") from None


@on_server
def usage(
    at: ServerConfig,
    first: Annotated[
        date | None, typer.Option("--from", parser=day, metavar="DAY", help="The first day (UTC).")
    ] = None,
    last: Annotated[
        date | None, typer.Option("--to", parser=day, metavar="DAY", help="The last day (UTC).")
    ] = None,
    by_hour: Annotated[
        bool, typer.Option("--by-hour", help="Sum by hour. Default: the last 2 days.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show usage by day and endpoint, of the last 30 days by default.

    With --by-hour, by hour and endpoint, of the last 2 days by default.
    """
    if as_csv and as_json:
        raise Misconfigured("--csv and --json cannot be combined")
    with at.client() as client:
        days = client.usage(first, last, granularity="hour" if by_hour else "day")
    with until_nobody_reads():
        if as_json:
            for each in days:
                typer.echo(encode(_shown(each)))
        elif as_csv or not out.is_terminal:
            _write_csv(days, by_hour=by_hour)
        else:
            out.print(table(days), soft_wrap=False)


def _shown(each: UsageDay) -> dict[str, object]:
    """The fields that the server sent: an hour only if there is one."""
    shown: dict[str, object] = msgspec.to_builtins(each)
    return {name: value for name, value in shown.items() if value is not None}


def _write_csv(days: tuple[UsageDay, ...], *, by_hour: bool) -> None:
    first, *rest = (name for name in UsageDay.__struct_encode_fields__ if name != "hour")
    fields = [first, *(["hour"] if by_hour else []), *rest]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(fields)
    for each in days:
        shown = _shown(each)
        writer.writerow([shown[name] for name in fields])
    sys.stdout.flush()


def table(days: tuple[UsageDay, ...]) -> Table:
    """The days or hours as a table, with totals."""
    shown = Table(
        box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_footer=bool(days)
    )
    shown.add_column("day", no_wrap=True, footer="total")
    shown.add_column("endpoint", overflow="fold")
    for name in _NUMBERS:
        total = sum(getattr(each, name) for each in days)
        shown.add_column(name, justify="right", no_wrap=True, footer=f"{total:,}")
    ran = sum(each.run_seconds for each in days)
    shown.add_column("run time", justify="right", no_wrap=True, footer=span(ran))
    for each in days:
        numbers = (f"{getattr(each, name):,}" for name in _NUMBERS)
        when = f"{each.day}" if each.hour is None else f"{each.hour:%Y-%m-%d %H:00}"
        cells = (when, each.endpoint, *numbers, span(each.run_seconds))
        shown.add_row(*map(Text, cells))
    return shown
