"""``coatcheck listen``: forwards webhooks to a machine that the server cannot reach."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer

from coatcheck.cli.console import err, out, say, warn
from coatcheck.cli.errors import Misconfigured
from coatcheck.cli.event_names import EventsOption, event_names
from coatcheck.cli.forwarder import Forwarder
from coatcheck.cli.listener import Listener
from coatcheck.cli.server_address import Server
from coatcheck.cli.server_options import on_server

_EXIT_FORCED: Final = 130


@on_server
def listen(
    at: Server,
    forward_to: Annotated[
        str,
        typer.Option(
            metavar="URL", help="Where to forward them, such as http://127.0.0.1:9000/hook."
        ),
    ],
    events: EventsOption = None,
    print_secret: Annotated[
        bool, typer.Option("--print-secret", help="Print the signing secret.")
    ] = False,
) -> None:
    """Forward webhooks to a URL on this machine until Ctrl-C.

    The requests are the same as those the server sends, signatures included. Needs an
    API key with the scope admin.
    """
    url = _checked(forward_to)
    with asyncio.Runner() as runner:
        runner.run(_listen(url, event_names(events), print_secret, at))


async def _listen(url: str, events: list[str] | None, print_secret: bool, at: Server) -> None:
    stop = asyncio.Event()

    def request_stop() -> None:
        if stop.is_set():
            os._exit(_EXIT_FORCED)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, request_stop)
    async with (
        at.async_client(retries=0) as client,
        Forwarder(url) as forwarder,
    ):
        listener = Listener(
            client,
            forwarder,
            events,
            description=f"coatcheck listen on {socket.gethostname()}"[:100],
            say=_show,
            warn=warn,
        )
        working = asyncio.create_task(_work(listener, url, print_secret))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
        finally:
            stopping.cancel()
            await listener.end()
        if not working.cancelled():
            working.result()


async def _work(listener: Listener, url: str, print_secret: bool) -> None:
    endpoint = await listener.begin()
    say(f"listening for {', '.join(endpoint.events)}")
    say(f"forwarding to {url}; Ctrl-C to stop")
    if print_secret and endpoint.secret is not None:
        err.print("Signing secret:", style="dim")
        typer.echo(endpoint.secret)
    await listener.forward(endpoint)


def _show(text: str) -> None:
    out.print(text, markup=False)


def _checked(url: str) -> str:
    """The complete URL: the scheme defaults to http, and a leading port means this machine.

    Raises Misconfigured.
    """
    host = "127.0.0.1:" if url.partition("/")[0].isdecimal() else ""
    whole = url if "://" in url else f"http://{host}{url}"
    try:
        parts = urlsplit(whole)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port  # raises ValueError if it is invalid
    except ValueError:
        is_usable = False
    if not is_usable:
        raise Misconfigured(
            f"{url!r} is not a valid URL\n--forward-to takes a URL such as "
            "http://127.0.0.1:9000/hook."
        )
    return whole
