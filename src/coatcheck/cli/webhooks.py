"""``coatcheck webhooks``: webhook endpoints and deliveries of an organisation.

``coatcheck listen`` forwards events to this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Final
from urllib.parse import urlsplit

import httpx2
import typer

from coatcheck.cli.command_errors import EXIT_FAILED, Misconfigured
from coatcheck.cli.console import err, out, plain, say, until_nobody_reads, warn
from coatcheck.cli.options import JsonOption, SinceOption, UntilOption
from coatcheck.cli.server_address import ServerConfig, on_server
from coatcheck.client import (
    ApiError,
    AsyncClient,
    Client,
    ClientError,
    ConnectionFailed,
    NotFoundError,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookMessage,
)
from coatcheck.client.errors import retry_after_seconds
from coatcheck.domain.retry import Backoff
from coatcheck.domain.webhooks import POST_SECONDS_MAX, RETRY_AFTER_SECONDS_MAX, retry_seconds
from coatcheck.encoding import encode
from coatcheck.tls import trusted_authorities
from coatcheck.version import __version__

EventsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--events",
        help="Events to send, such as job.failed. Comma-separated or repeated. Default: "
        "the end of every job and batch.",
    ),
]


def event_names(texts: list[str] | None) -> list[str] | None:
    """The names; None if there are none."""
    return [name for text in texts or [] for name in text.replace(",", " ").split()] or None


def endpoint_line(endpoint: WebhookEndpoint) -> str:
    """An endpoint on one line."""
    where = "(polled)" if endpoint.pulled else endpoint.url or ""
    parts = [endpoint.id, f"{endpoint.status:<8}", where, ",".join(endpoint.events)]
    if endpoint.description:
        parts.append(f"({endpoint.description})")
    return plain("  ".join(parts)).rstrip()


def delivery_line(delivery: WebhookDelivery) -> str:
    """A delivery on one line: time, event, job, URL and outcome."""
    made = (
        "" if delivery.created_at is None else f"{delivery.created_at.astimezone():%m-%d %H:%M:%S}"
    )
    parts = [
        delivery.id,
        made,
        delivery.event,
        delivery.job_id or "-",
        delivery.url or "(polled)",
        outcome(delivery),
    ]
    return plain("  ".join(parts)).rstrip()


def outcome(delivery: WebhookDelivery) -> str:
    """The outcome of a delivery so far."""
    text = delivery.status
    if delivery.paused:
        text = "paused"
    if delivery.tries > 1:
        text += f" after {delivery.tries} attempts"
    elif delivery.status == "pending" and delivery.tries == 1:
        text += " after 1 attempt"
    why = delivery.last_error
    if why is None and delivery.last_status_code is not None:
        why = f"HTTP {delivery.last_status_code}"
    if delivery.status == "pending" and not delivery.tries:
        return f"{text}; last attempt: {why}" if why else text  # it is being resent
    if why:
        text += f": {why}"
    if delivery.status == "pending" and delivery.next_try_at is not None:
        text += f"; next attempt at {delivery.next_try_at.astimezone():%m-%d %H:%M:%S}"
    return text


_TEST_SECONDS_MAX: Final = 30.0
_LOOK_SECONDS: Final = 0.2

app: Final = typer.Typer(
    name="webhooks",
    no_args_is_help=True,
    help="Manage webhook endpoints; list and resend deliveries.",
)

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The endpoint ID.")]
OptionalIdArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="ID", help="The endpoint ID. Default: the secret for URLs given with jobs."
    ),
]
EndpointOption = Annotated[
    str | None, typer.Option("--endpoint", metavar="ID", help="Only deliveries to this endpoint.")
]


@app.command(name="list")
@on_server
def list_all(at: ServerConfig, as_json: JsonOption = False) -> None:
    """List the endpoints."""
    with at.client() as client:
        for endpoint in client.webhooks.list():
            typer.echo(encode(endpoint) if as_json else endpoint_line(endpoint))


@app.command()
@on_server
def create(
    at: ServerConfig,
    receiver: Annotated[str, typer.Argument(metavar="URL", help="The URL to post to.")],
    events: EventsOption = None,
    description: Annotated[str | None, typer.Option(help="A description of the endpoint.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Create an endpoint, and print its ID and signing secret."""
    with at.client() as client:
        made = client.webhooks.create(receiver, events=event_names(events), description=description)
    if as_json:
        typer.echo(encode(made))
        return
    typer.echo(endpoint_line(made))
    err.print("Signing secret:", style="dim")
    typer.echo(made.secret)


@app.command()
@on_server
def pause(at: ServerConfig, endpoint_id: IdArgument, as_json: JsonOption = False) -> None:
    """Pause an endpoint. Deliveries are kept until it is resumed."""
    with at.client() as client:
        endpoint = client.webhooks.pause(endpoint_id)
    typer.echo(encode(endpoint) if as_json else endpoint_line(endpoint))


@app.command()
@on_server
def resume(at: ServerConfig, endpoint_id: IdArgument, as_json: JsonOption = False) -> None:
    """Resume an endpoint and send the deliveries kept for it."""
    with at.client() as client:
        endpoint = client.webhooks.resume(endpoint_id)
    typer.echo(encode(endpoint) if as_json else endpoint_line(endpoint))


@app.command()
@on_server
def secret(
    at: ServerConfig, endpoint_id: OptionalIdArgument = None, as_json: JsonOption = False
) -> None:
    """Print the signing secret."""
    with at.client() as client:
        found = client.webhooks.secret(endpoint_id)
    typer.echo(encode(found) if as_json else found.secret)


@app.command()
@on_server
def rotate(
    at: ServerConfig, endpoint_id: OptionalIdArgument = None, as_json: JsonOption = False
) -> None:
    """Replace the signing secret and print the new one. Both sign for a day."""
    with at.client() as client:
        rotated = client.webhooks.rotate(endpoint_id)
    if as_json:
        typer.echo(encode(rotated))
        return
    typer.echo(rotated.secret)
    if rotated.previous_expires_at is not None:
        until = rotated.previous_expires_at.astimezone()
        err.print(f"The previous secret stays valid until {until:%Y-%m-%d %H:%M:%S}.", style="dim")


@app.command()
@on_server
def delete(at: ServerConfig, endpoint_id: IdArgument, as_json: JsonOption = False) -> None:
    """Delete an endpoint. Its pending deliveries are not sent."""
    with at.client() as client:
        client.webhooks.delete(endpoint_id)
    done = {"id": endpoint_id, "deleted": True}
    typer.echo(encode(done) if as_json else f"Deleted {endpoint_id}.")


@app.command()
@on_server
def deliveries(
    at: ServerConfig,
    endpoint: EndpointOption = None,
    job: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Only deliveries about this job, task or batch."),
    ] = None,
    status: Annotated[
        str | None,
        typer.Option(help="Only deliveries that are pending, delivered, exhausted or disabled."),
    ] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of deliveries.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List deliveries, sent and pending, newest first."""
    with at.client() as client, until_nobody_reads():
        found = client.webhooks.deliveries(
            endpoint, job_id=job, status=status, since=since, until=until
        )
        for delivery in islice(found, limit):
            typer.echo(encode(delivery) if as_json else delivery_line(delivery))


@app.command()
@on_server
def replay(
    at: ServerConfig,
    message: Annotated[
        str | None, typer.Argument(metavar="MESSAGE", help="The webhook-id of the delivery.")
    ] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    endpoint: EndpointOption = None,
    status: Annotated[
        list[str] | None,
        typer.Option(
            help="Only deliveries with this status. Repeatable. Default: failed ones (exhausted, "
            "disabled, and pending after a failed attempt)."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Resend one delivery, or with --since all failed deliveries of a period."""
    if (message is None) == (since is None):
        raise Misconfigured("give either MESSAGE or --since")
    if since is None and (until, endpoint, status) != (None, None, None):
        raise Misconfigured("--until, --endpoint and --status need --since")
    with at.client() as client:
        if since is None:
            assert message is not None
            sent = client.webhooks.replay(message)
            typer.echo(encode(sent) if as_json else delivery_line(sent))
            return
        count = client.webhooks.replay_since(since, until, endpoint=endpoint, statuses=status)
    text = f"Resending {count:,} {'delivery' if count == 1 else 'deliveries'}."
    typer.echo(encode({"replayed": count}) if as_json else text)
    if not count and not as_json:
        err.print(
            "No failed deliveries in this period. Deliveries to a deleted endpoint, such as that "
            "of an ended `coatcheck listen`, cannot be resent.",
            style="dim",
        )


@app.command()
@on_server
def test(at: ServerConfig, endpoint_id: IdArgument, as_json: JsonOption = False) -> None:
    """Send a webhook.test to an endpoint and show the outcome. Exit code 1 if it fails."""
    with at.client() as client:
        sent = _after_first_attempt(client, client.webhooks.test(endpoint_id))
    typer.echo(encode(sent) if as_json else outcome(sent))
    if sent.status != "delivered":
        raise typer.Exit(EXIT_FAILED)


def _after_first_attempt(client: Client, sent: WebhookDelivery) -> WebhookDelivery:
    """The delivery after its first attempt, or unchanged if none happens in time."""
    deadline = time.monotonic() + _TEST_SECONDS_MAX
    while not (sent.tries or sent.ended_at or sent.paused) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        sent = client.webhooks.delivery(sent)
    return sent


_RETRY_AFTER_STATUSES: Final = frozenset({429, 503})


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a post: a status code, or why there was no response."""

    status_code: int | None = None
    error: str | None = None
    retry_after: float | None = None

    @property
    def is_success(self) -> bool:
        return self.status_code is not None and 200 <= self.status_code < 300

    def __str__(self) -> str:
        return self.error or str(self.status_code)


class Forwarder:
    """Posts to one URL. A context manager."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = httpx2.AsyncClient(
            verify=trusted_authorities(trust_env=False),
            trust_env=False,
            timeout=None,
            limits=httpx2.Limits(max_keepalive_connections=0),
        )

    async def __aenter__(self) -> Forwarder:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def post(self, message: WebhookMessage) -> Outcome:
        """Post the signed bytes once. Never raises for errors of the receiver."""
        headers = message.headers | {"user-agent": f"coatcheck/{__version__}"}
        try:
            async with (
                asyncio.timeout(POST_SECONDS_MAX),
                self._http.stream(
                    "POST", self.url, content=message.body.encode(), headers=headers
                ) as answer,
            ):
                return _read(answer)
        except TimeoutError:
            return Outcome(error=f"no answer within {POST_SECONDS_MAX:g} seconds")
        except httpx2.ConnectError:
            return Outcome(error="the connection failed")
        except httpx2.HTTPError:
            return Outcome(error="the connection broke, or the answer was not HTTP")


def _read(answer: httpx2.Response) -> Outcome:
    requested = None
    if answer.status_code in _RETRY_AFTER_STATUSES:
        requested = retry_after_seconds(answer.headers)
    return Outcome(
        answer.status_code,
        retry_after=None if requested is None else min(requested, RETRY_AFTER_SECONDS_MAX),
    )


_WAIT_SECONDS: Final = 30.0
"""How long the server may hold a poll: less than most proxies allow."""
_PAUSE_SECONDS: Final = 0.5
"""The pause after an immediate empty answer: a server that is shutting down does not hold polls."""
_DELETE_SECONDS_MAX: Final = 5.0
BACKOFF: Final = Backoff(base_seconds=0.5, cap_seconds=10.0, jitter=0.2)
_MAY_PASS: Final = frozenset({408, 429})

Say = Callable[[str], None]


class EndpointTakenAway(ClientError):
    """Somebody deleted the endpoint that we poll."""

    code = "endpoint_taken_away"


class WebhookForwarder:
    """Forwards webhooks. ``say`` prints each delivery, ``warn`` each problem.

    ``client`` must not retry requests: the listener decides when to retry.
    """

    def __init__(
        self,
        client: AsyncClient,
        forwarder: Forwarder,
        events: Sequence[str] | None,
        *,
        description: str,
        say: Say,
        warn: Say,
    ) -> None:
        self._webhooks = client.webhooks
        self._forwarder = forwarder
        self._events = events
        self._description = description
        self._say = say
        self._warn = warn
        self._creating: asyncio.Task[WebhookEndpoint] | None = None
        self.failures = 0

    async def begin(self) -> WebhookEndpoint:
        """Create the endpoint to poll. Raises what the client raises."""
        # A separate task: a request cancelled half-way would leave an endpoint behind.
        self._creating = asyncio.create_task(
            self._webhooks.create(events=self._events, description=self._description, pulled=True)
        )
        return await asyncio.shield(self._creating)

    async def forward(self, endpoint: WebhookEndpoint) -> None:
        """Forward until cancelled. Raises ApiError for errors that retries cannot fix."""
        while True:
            try:
                await self._forward_some(endpoint)
            except NotFoundError:
                endpoint = await self._another()
            except (ApiError, ConnectionFailed) as error:
                await self._wait_for_the_server(error)

    async def end(self) -> None:
        """Delete the endpoint. Never raises; warns if the deletion fails."""
        if self._creating is None:
            return
        try:
            async with asyncio.timeout(_DELETE_SECONDS_MAX):
                endpoint = await self._creating
                with contextlib.suppress(NotFoundError):
                    await self._webhooks.delete(endpoint)
        except TimeoutError:
            self._left_behind("timeout")
        except ClientError as error:
            if self._creating.done() and self._creating.exception() is None:
                self._left_behind(str(error))

    async def _forward_some(self, endpoint: WebhookEndpoint) -> None:
        # After a failure, poll without waiting, to notice at once that the server is back.
        wait = 0.0 if self.failures else _WAIT_SECONDS
        asked_at = time.monotonic()
        messages = await self._webhooks.take(endpoint, wait=wait)
        self._recovered()
        await asyncio.gather(*(self._deliver(endpoint, message) for message in messages))
        if not messages and time.monotonic() - asked_at < wait / 2:
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _deliver(self, endpoint: WebhookEndpoint, message: WebhookMessage) -> None:
        began = time.monotonic()
        outcome = await self._forwarder.post(message)
        self._say(_line(message, outcome, (time.monotonic() - began) * 1_000))
        while True:
            try:
                noted = await self._webhooks.report(
                    endpoint,
                    message,
                    status_code=outcome.status_code,
                    error=outcome.error,
                    retry_after=outcome.retry_after,
                )
            except NotFoundError:
                return  # the endpoint was deleted, and its messages with it
            except (ApiError, ConnectionFailed) as error:
                await self._wait_for_the_server(error)
                continue
            self._recovered()
            if not noted:
                self._warn(f"{message.id} was reported too late; the server will send it again")
            return

    async def _another(self) -> WebhookEndpoint:
        """Create a new endpoint if the old one was removed while the server was unreachable."""
        if not self.failures:
            raise EndpointTakenAway("somebody deleted the endpoint of this listener")
        while True:
            try:
                endpoint = await self.begin()
            except (ApiError, ConnectionFailed) as error:
                await self._wait_for_the_server(error)
                continue
            self._recovered()
            self._warn("the server had removed the endpoint; created a new one with another secret")
            return endpoint

    async def _wait_for_the_server(self, error: ApiError | ConnectionFailed) -> None:
        """Wait before the next try. Raises the error if waiting cannot help."""
        if isinstance(error, ApiError) and error.status < 500 and error.status not in _MAY_PASS:
            raise error
        requested = error.retry_after if isinstance(error, ApiError) else None
        delay = max(BACKOFF.delay(self.failures, random.random()), requested or 0.0)
        if not self.failures:
            self._warn(f"{error}; retrying")
        self.failures += 1
        await asyncio.sleep(delay)

    def _recovered(self) -> None:
        if self.failures:
            self._say("the server is back")
        self.failures = 0

    def _left_behind(self, why: str) -> None:
        self._warn(f"cannot delete the endpoint ({why}); the server removes it in 10 minutes")


def _line(message: WebhookMessage, outcome: Outcome, milliseconds: float) -> str:
    """One delivery on a line: ``12:00:01  job.completed  01K...  204  12 ms``."""
    parts = [
        f"{datetime.now(UTC).astimezone():%H:%M:%S}",
        message.event,
        message.job_id or "-",
        str(outcome),
    ]
    if outcome.is_success:
        parts.append(f"{milliseconds:.0f} ms")
    elif outcome.status_code == 410:
        parts.append("the receiver refuses webhooks; sending stops")
    else:
        seconds = retry_seconds(message.tries + 1, 0.0, outcome.retry_after, pulled=True)
        parts.append("no more attempts" if seconds is None else f"next attempt in {seconds:g} s")
    return "  ".join(parts)


_EXIT_FORCED: Final = 130


@on_server
def listen(
    at: ServerConfig,
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


async def _listen(url: str, events: list[str] | None, print_secret: bool, at: ServerConfig) -> None:
    stop = asyncio.Event()

    def request_stop() -> None:
        if stop.is_set():
            os._exit(_EXIT_FORCED)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, request_stop)
    async with at.async_client(retries=0) as client, Forwarder(url) as forwarder:
        listener = WebhookForwarder(
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


async def _work(listener: WebhookForwarder, url: str, print_secret: bool) -> None:
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
