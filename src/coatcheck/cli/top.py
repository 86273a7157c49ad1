"""``coatcheck top``: a live view of lanes, queues, workers and rates."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from math import ceil
from typing import Annotated, Final

import typer
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from coatcheck.cli.console import out, plain
from coatcheck.cli.job_display import span
from coatcheck.cli.options import JsonOption
from coatcheck.cli.server_address import ServerConfig, on_server
from coatcheck.client import Overview, OverviewPoint
from coatcheck.encoding import encode

_BARS: Final = "▁▂▃▄▅▆▇█"
_CURVE_CHARACTERS: Final = 60
_CURVE_CHARACTERS_MIN: Final = 10
_RATE_SECONDS: Final = 60.0
"""Rates cover the last full minute and the one that has just started."""
_UNITS: Final = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
_QUEUES_SHOWN: Final = 10
_FAILURES_SHOWN: Final = 8
_ROWS_FOR_ALL: Final = 30
"""A terminal with fewer rows omits the rare events that did not happen."""
_RATES: Final = ("submitted", "started", "completed", "failed")
_RARE: Final = ("cancelled", "retried", "rescued")


def screen(overview: Overview, *, hint: str = "", rows: int | None = None) -> Group:
    """The whole screen, from rates down to workers, within ``rows`` rows if given."""
    is_short = rows is not None and rows < _ROWS_FOR_ALL
    rates, lanes = _rates(overview, is_short), _lanes(overview)
    parts: list[RenderableType] = [_heading(overview, hint), Text(), rates, Text(), lanes]
    taken = 3 + 1 + rates.row_count + 1 + lanes.row_count
    below: tuple[tuple[int, Callable[[Overview, int], RenderableType]], ...] = (
        (max(1, min(len(overview.queues), _QUEUES_SHOWN)), _queues),
        (min(len(overview.failures), _FAILURES_SHOWN), _failures),
        (len(overview.workers), _workers),
    )
    left = None if rows is None else rows - taken
    for count, (_, table) in zip(shares([n for n, _ in below], left), below, strict=True):
        if count:
            parts += [Text(), table(overview, count)]
    return Group(*parts)


def shares(wanted: Sequence[int], left: int | None) -> list[int]:
    """Divide the remaining rows among tables, each with a gap and a heading. A table that gets no
    row is omitted."""
    if left is None:
        return list(wanted)
    given = [0] * len(wanted)
    for index, lines in enumerate(wanted):
        if lines and left >= 3:
            given[index], left = 1, left - 3
    while left > 0 and any(0 < has < wants for has, wants in zip(given, wanted, strict=True)):
        for index, wants in enumerate(wanted):
            if left > 0 and 0 < given[index] < wants:
                given[index], left = given[index] + 1, left - 1
    return given


def _heading(overview: Overview, hint: str) -> Text:
    whose = "all organisations" if overview.org_id == "*" else overview.org_id
    alive = overview.workers_alive
    heading = Text.assemble(
        ("coatcheck  ", "bold"),
        plain(whose),
        f"  {overview.generated_at.astimezone():%H:%M:%S}",
        f"  {alive} {'worker' if alive == 1 else 'workers'} online",
    )
    return heading.append(f"   {hint}" if hint else "", style="dim")


def _rates(overview: Overview, is_short: bool) -> Table:
    recent, seconds = latest_points(overview)
    shown = _table(
        f"last {_span_of(max(_RATE_SECONDS, overview.bucket_seconds))}",
        "per second",
        f"one bar per {_span_of(overview.bucket_seconds)}",
        right=(1,),
    )
    shown.columns[2].no_wrap = False  # this column shrinks first
    for name in (*_RATES, *_RARE):
        numbers = [getattr(point, name) for point in overview.series]
        if is_short and name in _RARE and not any(numbers):
            continue
        total = sum(getattr(point, name) for point in recent)
        style = "red" if name in ("failed", "rescued") and total else ""
        shown.add_row(Text(name), Text(_rate(total / seconds), style=style), Curve(numbers))
    for name, kind in (("start latency", "start"), ("run time", "run")):
        p50, p99 = f"{kind}_p50", f"{kind}_p99"
        latest = next((each for each in reversed(recent) if getattr(each, p50) is not None), None)
        if latest is not None:
            shown.add_row(
                Text(name),
                Text(_latency(getattr(latest, p50), getattr(latest, p99))),
                Curve([getattr(point, p99) or 0.0 for point in overview.series]),
            )
    return shown


def latest_points(overview: Overview) -> tuple[Sequence[OverviewPoint], float]:
    """The points of the last minute or so, and how many seconds they cover.

    The newest point is still being counted: it covers the time since it started.
    """
    if not overview.series:
        return (), _RATE_SECONDS
    newest = overview.series[-1]
    lasts = (overview.generated_at - newest.at).total_seconds()
    lasts = min(max(lasts, 1.0), overview.bucket_seconds)
    whole = min(ceil(_RATE_SECONDS / overview.bucket_seconds), len(overview.series) - 1)
    return overview.series[-1 - whole :], lasts + whole * overview.bucket_seconds


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.2f}"


class Curve:
    """A sparkline as wide as there is room; it shows the latest numbers."""

    def __init__(self, numbers: Sequence[float]) -> None:
        self._numbers = numbers[-_CURVE_CHARACTERS:]

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(sparkline(self._numbers[-options.max_width :]), no_wrap=True)

    def __rich_measure__(self, _: Console, options: ConsoleOptions) -> Measurement:
        most = min(len(self._numbers), options.max_width)
        return Measurement(min(most, _CURVE_CHARACTERS_MIN), most)


def sparkline(numbers: Sequence[float]) -> str:
    """Numbers as one bar character each, the latest on the right."""
    top = max(numbers, default=0)
    if not top:
        return _BARS[0] * len(numbers)
    return "".join(
        _BARS[min(len(_BARS) - 1, round(number / top * (len(_BARS) - 1)))] for number in numbers
    )


def _lanes(overview: Overview) -> Table:
    shown = _table(
        *("lane", "queued", "oldest", "staged", "retrying", "running"), right=(1, 2, 3, 4, 5)
    )
    for lane in overview.lanes:
        oldest = lane.oldest_queued_seconds
        shown.add_row(
            *_cells(
                lane.lane,
                _counted(lane.queued, lane.exact),
                "" if oldest is None else span(oldest),
                f"{lane.staged:,}",
                f"{lane.retrying:,}",
                f"{lane.held:,}",
            )
        )
    return shown


def _queues(overview: Overview, count: int) -> RenderableType:
    if not overview.queues:
        # Only admins see the names of queues.
        waits = any(lane.queued for lane in overview.lanes)
        text = "shown only to keys with the scope admin" if waits else "no jobs are queued"
        return Group(Text("longest queues", style="dim"), Text(text))
    shown = _table("longest queues", "lane", "queued", "running", right=(2, 3))
    for queue in overview.queues[:count]:
        label = queue.label or queue.queue_key
        if overview.org_id == "*":
            label = f"{queue.org_id}  {label}"
        queued = _counted(queue.queued, queue.exact)
        shown.add_row(*_cells(label, queue.lane, queued, f"{queue.held:,}"))
    return shown


def _counted(number: int, is_exact: bool) -> str:
    return f"{number:,}" if is_exact else f"{number:,}+"


def _failures(overview: Overview, count: int) -> Table:
    shown = _table("error code", "jobs", right=(1,))
    for failure in overview.failures[:count]:
        shown.add_row(*_cells(failure.code, f"{failure.count:,}"))
    return shown


def _workers(overview: Overview, count: int) -> Table:
    shown = _table("worker", "version", "jobs", "uptime", "last seen", right=(2, 3, 4))
    now = datetime.now(UTC)
    for worker in overview.workers[:count]:
        started, seen = worker.started_at, worker.last_seen_at
        shown.add_row(
            *_cells(
                worker.name or f"boot {worker.boot}",
                worker.version,
                f"{worker.held:,}/{sum(worker.slots):,}" if worker.slots else f"{worker.held:,}",
                "" if started is None else span((now - started).total_seconds()),
                "" if seen is None else f"{span((now - seen).total_seconds())} ago",
            ),
            style="" if worker.alive else "dim",
        )
    return shown


def _span_of(seconds: float) -> str:
    """A duration in words: ``minute``, ``5 minutes``."""
    for size, name in _UNITS:
        if seconds >= size and not seconds % size:
            number = round(seconds / size)
            return name if number == 1 else f"{number} {name}s"
    return f"{seconds:g} seconds"


def _latency(p50: float | None, p99: float | None) -> str:
    return "  ".join(
        f"{name} {span(value)}" for name, value in (("p50", p50), ("p99", p99)) if value is not None
    )


def _table(*headings: str, right: Iterable[int] = ()) -> Table:
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    numbers = set(right)
    for index, heading in enumerate(headings):
        shown.add_column(
            heading,
            no_wrap=True,
            overflow="ellipsis",
            justify="right" if index in numbers else "left",
        )
    return shown


def _cells(*texts: str) -> list[Text]:
    return [Text(plain(text)) for text in texts]


_QUIT: Final = frozenset(b"qQ\x1b\x03\x04")


@on_server
def top(
    at: ServerConfig,
    minutes: Annotated[
        int, typer.Option(min=5, max=43_200, help="How far back the charts go.")
    ] = 30,
    every: Annotated[float, typer.Option(min=0.5, help="Seconds between refreshes.")] = 2.0,
    all_orgs: Annotated[
        bool, typer.Option("--all", help="Show all organisations and their workers. For operators.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Print once and exit.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show a live view of queues, workers, rates and latencies.

    Press q to quit. In a pipe it prints once.
    """
    if as_json or once or not (out.is_terminal and sys.stdin.isatty()):
        with at.client() as client:
            overview = client.overview(minutes, all_orgs=all_orgs)
        if as_json:
            typer.echo(encode(overview))
        else:
            out.print(screen(overview), soft_wrap=False)
        return
    with contextlib.suppress(KeyboardInterrupt):  # another normal way to quit
        asyncio.run(_live(at, minutes, every, all_orgs))


async def _live(at: ServerConfig, minutes: int, every: float, all_orgs: bool) -> None:
    async with at.async_client() as client:
        overview = await client.overview(minutes, all_orgs=all_orgs)
        with Live(console=out, screen=True, auto_refresh=False) as live, _keys() as quit_wanted:
            while True:
                live.update(screen(overview, hint="q to quit", rows=out.size.height), refresh=True)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(quit_wanted.wait(), every)
                    return
                overview = await client.overview(minutes, all_orgs=all_orgs)


@contextlib.contextmanager
def _keys() -> Iterator[asyncio.Event]:
    """An event set when a quit key is pressed; the terminal reports keys without Enter."""
    pressed = asyncio.Event()
    loop = asyncio.get_running_loop()
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def read() -> None:
        keys = os.read(terminal, 64)
        if not keys:  # the terminal is gone
            loop.remove_reader(terminal)
        if not keys or _QUIT.intersection(keys):
            pressed.set()

    tty.setcbreak(terminal)
    loop.add_reader(terminal, read)
    try:
        yield pressed
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
