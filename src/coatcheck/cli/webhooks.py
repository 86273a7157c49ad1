"""``coatcheck webhooks``: webhook endpoints and deliveries of an organisation."""

from __future__ import annotations

import time
from itertools import islice
from typing import Annotated, Final

import typer

from coatcheck.cli.console import err, until_nobody_reads
from coatcheck.cli.errors import EXIT_FAILED, Misconfigured
from coatcheck.cli.options import JsonOption, SinceOption, UntilOption
from coatcheck.cli.server_address import ServerConfig, on_server
from coatcheck.client import Client, WebhookDelivery, WebhookEndpoint
from coatcheck.encoding import encode

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
    return _printable("  ".join(parts))


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
    return _printable("  ".join(parts))


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


def _printable(text: str) -> str:
    """The text on one line, without control characters."""
    return "".join(c if c.isprintable() else " " for c in text).rstrip()


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
def pause(
    at: ServerConfig,
    endpoint_id: IdArgument,
    as_json: JsonOption = False,
) -> None:
    """Pause an endpoint. Deliveries are kept until it is resumed."""
    with at.client() as client:
        endpoint = client.webhooks.pause(endpoint_id)
    typer.echo(encode(endpoint) if as_json else endpoint_line(endpoint))


@app.command()
@on_server
def resume(
    at: ServerConfig,
    endpoint_id: IdArgument,
    as_json: JsonOption = False,
) -> None:
    """Resume an endpoint and send the deliveries kept for it."""
    with at.client() as client:
        endpoint = client.webhooks.resume(endpoint_id)
    typer.echo(encode(endpoint) if as_json else endpoint_line(endpoint))


@app.command()
@on_server
def secret(
    at: ServerConfig,
    endpoint_id: OptionalIdArgument = None,
    as_json: JsonOption = False,
) -> None:
    """Print the signing secret."""
    with at.client() as client:
        found = client.webhooks.secret(endpoint_id)
    typer.echo(encode(found) if as_json else found.secret)


@app.command()
@on_server
def rotate(
    at: ServerConfig,
    endpoint_id: OptionalIdArgument = None,
    as_json: JsonOption = False,
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
def test(
    at: ServerConfig,
    endpoint_id: IdArgument,
    as_json: JsonOption = False,
) -> None:
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
