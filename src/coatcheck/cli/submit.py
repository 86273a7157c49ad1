"""``coatcheck submit``: submits a job over HTTP."""

from __future__ import annotations

import difflib
import re
import sys
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import quote

import msgspec
import typer

from coatcheck.cli import options
from coatcheck.cli.console import warn
from coatcheck.cli.errors import Misconfigured
from coatcheck.cli.job_display import ended, require_completed, show
from coatcheck.cli.server_address import ServerConfig
from coatcheck.cli.server_options import on_server
from coatcheck.client import Client, NotFoundError, PermissionDeniedError
from coatcheck.encoding import encode

_NAME: Final = re.compile(r"(?P<service>[^./]+)\.(?:v(?P<version>[0-9]+)\.)?(?P<key>[^./]+)")
_PARAMETER: Final = re.compile(r"\{(\w+)\}")


@on_server
def submit(
    at: ServerConfig,
    endpoint: Annotated[
        str,
        typer.Argument(
            metavar="ENDPOINT", help="The endpoint, such as demo/echo or demo.post__echo."
        ),
    ],
    payload: Annotated[
        str,
        typer.Argument(
            metavar="JSON", help="The arguments as a JSON object, @FILE, or - for standard input."
        ),
    ] = "{}",
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the job ends.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show its progress and log until the job ends.")
    ] = False,
    lane: Annotated[str | None, typer.Option(help="The lane: urgent, standard or bulk.")] = None,
    delay: Annotated[
        int | None,
        typer.Option(
            parser=options.seconds,
            metavar="SPAN",
            help="Start the job later, such as in 90s, 15m or 2h.",
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Idempotency key: the same key returns the same job.")
    ] = None,
    method: Annotated[
        str, typer.Option(help="The HTTP method of an endpoint named by its path.")
    ] = "POST",
    service_version: Annotated[
        int | None, typer.Option("--service-version", help="Version of the service.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Submit a job and show it.

    With --wait or --watch, exit code 1 if the job does not complete.
    """
    body = _checked_json(payload)
    with at.client() as client:
        service, version, method, path, body = _target(
            client, endpoint, service_version, method.upper(), body
        )
        ticket = client.submit(
            service,
            path,
            body,
            version=version,
            method=method,
            lane=lane,
            idempotency_key=key,
            delay=delay,
        )
        if ticket.mismatch:
            warn("this idempotency key was used with other input; showing the job created then")
        try:
            job = client.jobs.get(ticket.id)
        except PermissionDeniedError:
            if wait or watch:
                raise
            warn("the API key lacks the scope read: it can submit jobs but not show them")
            as_text = sys.stdout.isatty() and not as_json
            typer.echo(ticket.id if as_text else encode({"id": ticket.id}))
            return
        if wait or watch:
            job = ended(at, job, shown=watch)
    show(job, as_json=as_json)
    if wait or watch:
        require_completed(at, job)


def _target(
    client: Client, endpoint: str, version: int | None, method: str, body: bytes
) -> tuple[str, int | None, str, str, bytes]:
    """The service, version, method and path, and the body without the path's parameters."""
    service, slash, path = endpoint.partition("/")
    if slash:
        if not service:
            raise Misconfigured(
                f"{endpoint!r} has no service\nWrite SERVICE/PATH, such as demo/echo."
            )
        return service, version, method, path, body
    named = _NAME.fullmatch(endpoint)
    if named is None:
        raise Misconfigured(
            f"{endpoint!r} is not an endpoint\n"
            "Write SERVICE/PATH, such as demo/echo, or the endpoint's key: demo.post__echo."
        )
    if named["version"]:
        version = int(named["version"])
    found = _endpoint(client, named["service"], version, named["key"])
    path, body = _filled(found["path"], body)
    return named["service"], version, found["method"], path, body


def _endpoint(client: Client, service: str, version: int | None, key: str) -> dict[str, Any]:
    try:
        shown = client.service(service)
    except NotFoundError:
        raise Misconfigured(
            f"service {service!r} not found\n"
            "A worker must have published it: start `coatcheck up MODULE:SERVICE` or "
            "`coatcheck worker MODULE:SERVICE`."
        ) from None
    versions: dict[str, Any] = shown["definition"]["versions"]
    wanted = str(shown["latest_version"] if version is None else version)
    if wanted not in versions:
        raise Misconfigured(
            f"service {service!r} has no version {wanted}\nVersions: {', '.join(versions)}."
        )
    endpoints: list[dict[str, Any]] = versions[wanted]["endpoints"]
    for each in endpoints:
        if each["key"] == key:
            return each
    keys = [each["key"] for each in endpoints]
    nearest = difflib.get_close_matches(key, keys, n=1) or [
        each for each in keys if each.endswith(f"__{key}")
    ]
    meant = f" Did you mean {service}.{nearest[0]}?" if nearest else ""
    has = ", ".join(f"{service}.{each}" for each in keys)
    raise Misconfigured(f"service {service!r} has no endpoint {key!r}.{meant}\nEndpoints: {has}.")


def _filled(path: str, body: bytes) -> tuple[str, bytes]:
    """The path with its parameters filled from the arguments."""
    names = _PARAMETER.findall(path)
    if not names:
        return path, body
    arguments = msgspec.json.decode(body)
    if not isinstance(arguments, dict) or not all(name in arguments for name in names):
        raise Misconfigured(f"the path {path} needs these arguments: {', '.join(names)}")
    for name in names:
        value = arguments.pop(name)
        text = value if isinstance(value, str) else encode(value).decode()
        path = path.replace(f"{{{name}}}", quote(text, safe=""))
    return path, encode(arguments)


def _checked_json(text: str) -> bytes:
    """The text unchanged, once it is known to be JSON."""
    if text == "-":
        raw = sys.stdin.buffer.read()
    elif text.startswith("@"):
        raw = Path(text[1:]).read_bytes()
    else:
        raw = text.encode()
    try:
        msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise Misconfigured(
            f"the payload is not JSON: {error}\n"
            """Quote it for the shell, such as '{"message": "hello"}'."""
        ) from error
    return raw
