"""``coatcheck top``: a live view of lanes, queues, workers and rates."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import termios
import tty
from collections.abc import Iterator
from typing import Annotated, Final

import typer
from rich.live import Live

from coatcheck.cli.common_options import JsonOption
from coatcheck.cli.console import out
from coatcheck.cli.server_address import Server
from coatcheck.cli.server_options import on_server
from coatcheck.cli.top_screen import screen
from coatcheck.encoding import encode

_QUIT: Final = frozenset(b"qQ\x1b\x03\x04")


@on_server
def top(
    at: Server,
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


async def _live(at: Server, minutes: int, every: float, all_orgs: bool) -> None:
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
