"""``coatcheck webhooks``: who is told of an organisation's jobs, and what was sent."""

from __future__ import annotations

import time
from itertools import islice
from typing import Annotated, Final

import typer

from coatcheck.cli.common_options import JsonOption, SinceOption, UntilOption
from coatcheck.cli.console import err, until_nobody_reads
from coatcheck.cli.errors import EXIT_FAILED, Misconfigured
from coatcheck.cli.event_names import EventsOption, event_names
from coatcheck.cli.remote import Server
from coatcheck.cli.server_options import on_server
from coatcheck.cli.webhook_show import delivery_line, endpoint_line, outcome
from coatcheck.client import Client, WebhookDelivery
from coatcheck.encoding import encode

_TEST_SECONDS_MAX: Final = 30.0
_LOOK_SECONDS: Final = 0.2

app: Final = typer.Typer(
    name="webhooks",
    no_args_is_help=True,
    help="Register who is told of jobs; see what was sent, and send it again.",
)

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The endpoint.")]
OptionalIdArgument = Annotated[
    str | None,
    typer.Argument(metavar="ID", help="The endpoint; if left out, URLs that are named with a job."),
]
EndpointOption = Annotated[
    str | None, typer.Option("--endpoint", metavar="ID", help="To this endpoint only.")
]


@app.command(name="list")
@on_server
def list_all(at: Server, as_json: JsonOption = False) -> None:
    """List the endpoints, a line each."""
    with at.client() as client:
        for endpoint in client.webhooks.list():
            typer.echo(encode(endpoint) if as_json else endpoint_line(endpoint))


@app.command()
@on_server
def create(
    at: Server,
    receiver: Annotated[str, typer.Argument(metavar="URL", help="Where it is posted to.")],
    events: EventsOption = None,
    description: Annotated[str | None, typer.Option(help="What it is for.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Register an endpoint, and print its id and its secret."""
    with at.client() as client:
        made = client.webhooks.create(receiver, events=event_names(events), description=description)
    if as_json:
        typer.echo(encode(made))
        return
    typer.echo(endpoint_line(made))
    err.print("The secret that signs what it is told:", style="dim")
    typer.echo(made.secret)


@app.command()
@on_server
def pause(
    at: Server,
    endpoint_id: IdArgument,
    as_json: JsonOption = False,
) -> None:
    """Send nothing to an endpoint for now; what there is to tell is kept."""
    with at.client() as client:
        endpoint = client.webhooks.pause(endpoint_id)
    typer.echo(encode(endpoint) if as_json else endpoint_line(endpoint))


@app.command()
@on_server
def resume(
    at: Server,
    endpoint_id: IdArgument,
    as_json: JsonOption = False,
) -> None:
    """Send to an endpoint again, also what was kept."""
    with at.client() as client:
        endpoint = client.webhooks.resume(endpoint_id)
    typer.echo(encode(endpoint) if as_json else endpoint_line(endpoint))


@app.command()
@on_server
def secret(
    at: Server,
    endpoint_id: OptionalIdArgument = None,
    as_json: JsonOption = False,
) -> None:
    """Print the secret that signs."""
    with at.client() as client:
        found = client.webhooks.secret(endpoint_id)
    typer.echo(encode(found) if as_json else found.secret)


@app.command()
@on_server
def rotate(
    at: Server,
    endpoint_id: OptionalIdArgument = None,
    as_json: JsonOption = False,
) -> None:
    """Replace the secret that signs, and print the new one. For a day both sign."""
    with at.client() as client:
        rotated = client.webhooks.rotate(endpoint_id)
    if as_json:
        typer.echo(encode(rotated))
        return
    typer.echo(rotated.secret)
    if rotated.previous_expires_at is not None:
        until = rotated.previous_expires_at.astimezone()
        err.print(f"The one before signs along until {until:%Y-%m-%d %H:%M:%S}.", style="dim")


@app.command()
@on_server
def delete(at: Server, endpoint_id: IdArgument, as_json: JsonOption = False) -> None:
    """Take an endpoint away; what waits for it is not sent."""
    with at.client() as client:
        client.webhooks.delete(endpoint_id)
    done = {"id": endpoint_id, "deleted": True}
    typer.echo(encode(done) if as_json else f"{endpoint_id} is deleted")


@app.command()
@on_server
def deliveries(
    at: Server,
    endpoint: EndpointOption = None,
    job: Annotated[
        str | None, typer.Option(metavar="ID", help="Of this job, task or batch only.")
    ] = None,
    status: Annotated[
        str | None, typer.Option(help="pending, delivered, exhausted or disabled.")
    ] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: Annotated[int, typer.Option(min=1, help="How many, at most.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """Show what was sent and what is to be, newest first, a line each."""
    with at.client() as client, until_nobody_reads():
        found = client.webhooks.deliveries(
            endpoint, job_id=job, status=status, since=since, until=until
        )
        for delivery in islice(found, limit):
            typer.echo(encode(delivery) if as_json else delivery_line(delivery))


@app.command()
@on_server
def replay(
    at: Server,
    message: Annotated[
        str | None, typer.Argument(metavar="MESSAGE", help="The delivery, by its webhook-id.")
    ] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    endpoint: EndpointOption = None,
    status: Annotated[
        list[str] | None,
        typer.Option(
            help="Of this status; may be given again. By default what failed: exhausted, disabled, "
            "and pending after a failed try."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Send one delivery again, or with --since all of a span of time."""
    if (message is None) == (since is None):
        raise Misconfigured("name one MESSAGE, or a span of time with --since")
    if since is None and (until, endpoint, status) != (None, None, None):
        raise Misconfigured("--until, --endpoint and --status go with --since")
    with at.client() as client:
        if since is None:
            assert message is not None
            sent = client.webhooks.replay(message)
            typer.echo(encode(sent) if as_json else delivery_line(sent))
            return
        count = client.webhooks.replay_since(since, until, endpoint=endpoint, statuses=status)
    said = "1 delivery is sent again" if count == 1 else f"{count} deliveries are sent again"
    typer.echo(encode({"replayed": count}) if as_json else said)
    if not count and not as_json:
        err.print(
            "No delivery of that time has failed. What was for a deleted endpoint, such as that of "
            "a listen that has ended, cannot be sent again.",
            style="dim",
        )


@app.command()
@on_server
def test(
    at: Server,
    endpoint_id: IdArgument,
    as_json: JsonOption = False,
) -> None:
    """Send an endpoint a webhook.test, and show what came of it. Exit 1 if it was not taken."""
    with at.client() as client:
        sent = _once_tried(client, client.webhooks.test(endpoint_id))
    typer.echo(encode(sent) if as_json else outcome(sent))
    if sent.status != "delivered":
        raise typer.Exit(EXIT_FAILED)


def _once_tried(client: Client, sent: WebhookDelivery) -> WebhookDelivery:
    """The delivery after its first try; as it is, if that does not come."""
    deadline = time.monotonic() + _TEST_SECONDS_MAX
    while not (sent.tries or sent.ended_at or sent.paused) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        sent = client.webhooks.delivery(sent)
    return sent
