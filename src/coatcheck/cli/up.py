"""``coatcheck up``: runs server, worker and an embedded PostgreSQL in the foreground.

Its first start creates the secrets, the organisation and the key.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import shlex
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import unquote, urlsplit
from uuid import UUID

import httpx2
import typer

from coatcheck.cli import data_dir
from coatcheck.cli.command_errors import Misconfigured, reporting_errors
from coatcheck.cli.console import out, own_command, say, warn
from coatcheck.cli.data_dir import keep_secret
from coatcheck.cli.environment import overridden, prepare
from coatcheck.cli.supervisor import Child, KeptPostgres
from coatcheck.core.queries import tenants
from coatcheck.core.queries.leases import newest_boot, workers_of_process
from coatcheck.db.connection import Connection
from coatcheck.db.embedded import EmbeddedPostgres
from coatcheck.db.migrate import migrate
from coatcheck.domain import tenants as api_keys
from coatcheck.domain.errors import DatabaseBeforeFirstRelease, DatabaseUnavailable, OutcomeUnknown
from coatcheck.domain.retry import DATABASE_BACKOFF
from coatcheck.domain.tenants import ALL_SCOPES, DEFAULT_ORG, KeyText, OrgLimits
from coatcheck.http.server import ListenError, listen
from coatcheck.installed import chosen_products
from coatcheck.maintenance.jobs import declare_dead
from coatcheck.settings import Settings, check_environment
from coatcheck.tls import trusted_authorities

DEV_USER: Final = "dev"
_DEV_KEY_NAME: Final = "dev key, made by coatcheck up"
_PEPPER_BYTES: Final = 32
_SECRET_KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class DevKey:
    """The API key of the user ``dev``, and the file that holds it."""

    path: Path
    text: str
    is_new: bool
    is_revoked: bool


def keep_pepper(folder: Path, given: str) -> tuple[str, bool]:
    """The pepper to use, and whether earlier keys were created with another one.

    It is the ``given`` pepper, else the stored one, else a new one. It is stored in the folder,
    where the commands that create keys find it.
    """
    stored = data_dir.stored_pepper(folder)
    pepper = given or stored or secrets.token_hex(_PEPPER_BYTES)
    if pepper != stored:
        data_dir.write(folder / data_dir.KEY_PEPPER, pepper)
    return pepper, stored is not None and pepper != stored


def keep_secret_keys(folder: Path, given: tuple[str, ...]) -> str:
    """The keys to seal secrets with: the ``given`` keys, then the stored ones.

    Stored keys may have sealed something already. Without any key a new one is created. The keys
    are stored in the folder, where the commands find them.
    """
    stored = (data_dir.stored_secret_keys(folder) or "").split()
    keys = [*given, *(key for key in stored if key not in given)]
    keys = keys or [secrets.token_hex(_SECRET_KEY_BYTES)]
    if keys != stored:
        data_dir.write(folder / data_dir.SECRET_KEYS, "\n".join(keys))
    return " ".join(keys)


async def bootstrap(dsn: str, folder: Path, *, pepper: str, preset: str) -> DevKey:
    """Create the organisation ``default``, its user ``dev`` and their key, unless they exist.

    Safe to run again after a crash at any point. A revoked key stays revoked until another is
    preset or the file is deleted.
    """
    db = Connection(dsn, name="bootstrap")
    try:
        await tenants.create_org(db, DEFAULT_ORG, "Default", OrgLimits())
        return await _dev_key(db, folder / data_dir.DEV_KEY, pepper.encode(), preset)
    finally:
        await db.close()


async def _dev_key(db: Connection, path: Path, pepper: bytes, preset: str) -> DevKey:
    stored = _stored_key(path)
    wanted = _parsed(preset) or stored or api_keys.mint()
    is_new = wanted != stored
    if is_new:
        if stored is not None:
            # Before the file is overwritten: afterwards nobody knows the old key.
            await tenants.revoke(db, DEFAULT_ORG, stored.key_id)
        data_dir.write(path, wanted.text)
    known = await tenants.get_key(db, DEFAULT_ORG, wanted.key_id)
    is_revoked = known is not None and known.revoked_at is not None and not is_new
    if known is None:
        await tenants.create_key(
            db,
            DEFAULT_ORG,
            wanted.key_id,
            user=DEV_USER,
            name=_DEV_KEY_NAME,
            digest=wanted.digest(pepper),
            scopes=ALL_SCOPES,
        )
    elif not is_revoked:
        # Its secret or the pepper may have changed.
        await tenants.reset_key(db, DEFAULT_ORG, wanted.key_id, wanted.digest(pepper))
    return DevKey(path, wanted.text, is_new, is_revoked)


def _stored_key(path: Path) -> KeyText | None:
    text = data_dir.read(path)
    if text is None:
        return None
    key = _parsed(text)
    if key is None:
        raise Misconfigured(
            f"{path} does not contain an API key\nDelete the file to get a new key."
        )
    return key


def _parsed(text: str) -> KeyText | None:
    return api_keys.parse(text.encode())


DEMO_SERVICE: Final = "coatcheck.cli.demo:demo"

OF_THE_CONTROL_PLANE: Final = frozenset(
    f"COATCHECK_{name}"
    for name in (
        *("KEY_PEPPER", "STRIPE_WEBHOOK_SECRET", "STRIPE_API_KEY", "STRIPE_METERS"),
        *("JWT_SECRET", "JWT_ISSUER", "JWT_AUDIENCE", "JWT_ISSUERS"),
    )
)
"""Secrets that a worker must not have, because it runs user code."""

_WEBHOOK_LOOPBACK: Final = "COATCHECK_WEBHOOK_LOOPBACK"
_PUBLIC_URL: Final = "COATCHECK_PUBLIC_URL"
_OPERATOR_ORG: Final = "COATCHECK_OPERATOR_ORG"
_LOOPBACK_WARNING: Final = (
    "webhooks may be sent to this machine (127.0.0.1, ::1, localhost), for development; "
    f"set {_WEBHOOK_LOOPBACK}=off to forbid it"
)
_PORT_WAIT_SECONDS: Final = 3.0
_PORT_LOOK_SECONDS: Final = 0.1
_READY_LOOK_SECONDS: Final = 0.1
_STOP_MARGIN_SECONDS: Final = 10.0
_DEATH_REPORT_SECONDS_MAX: Final = 2.0
"""How long a stop waits to record a worker's death; otherwise the next start may detect it."""
_EXIT_FORCED: Final = 130


@reporting_errors
def up(
    services: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODULE:SERVICE", help="Your services. Default: a small built-in demo."
        ),
    ] = None,
    data: data_dir.DataOption = None,
    port: Annotated[
        int | None, typer.Option(help="The port to listen on, instead of COATCHECK_PORT.")
    ] = None,
) -> None:
    """Start PostgreSQL, the API server and a worker, and run them until Ctrl-C.

    All data is kept in the data folder. Start again on the same folder to continue.
    """
    environment = overridden({"COATCHECK_PORT": port})
    check_environment(environment, except_for="COATCHECK_DATABASE_URL")
    folder, why = data_dir.choose(data)
    environment |= {
        "COATCHECK_DATABASE_URL": EmbeddedPostgres(folder).dsn,
        "COATCHECK_BLOB_URL": data_dir.blob_url(folder),
    }
    environment.setdefault(_OPERATOR_ORG, DEFAULT_ORG)
    is_lenient = let_webhooks_in(environment)
    settings = Settings.from_environment(environment)
    environment.pop("COATCHECK_DEV_KEY", None)  # child processes must not see it
    prepare(settings)
    chosen_products(settings.products)  # before anything is started
    _check_port(settings)
    if is_lenient:
        warn(_LOOPBACK_WARNING)
    stack = _Stack(settings, environment, folder, why, services or [])
    with asyncio.Runner() as runner:
        runner.run(stack.run())


def let_webhooks_in(environment: dict[str, str]) -> bool:
    """Allow webhooks to this machine unless the setting for it is set.

    Returns whether it changed the setting.
    """
    if environment.get(_WEBHOOK_LOOPBACK, "").strip():
        return False
    environment[_WEBHOOK_LOOPBACK] = "on"
    return True


def _check_port(settings: Settings) -> None:
    """Check that the port is free before anything starts.

    Retries for a few seconds: the server of an ``up`` that was just killed may still be stopping.
    """
    deadline = time.monotonic() + _PORT_WAIT_SECONDS
    while True:
        try:
            listen(settings.host, settings.port).close()
        except ListenError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_PORT_LOOK_SECONDS)
        else:
            return


class _Stack:
    """The processes that ``up`` runs, from start to stop."""

    def __init__(
        self,
        settings: Settings,
        environment: dict[str, str],
        folder: Path,
        why: str,
        services: list[str],
    ) -> None:
        self._settings = settings
        self._environment = environment
        self._folder = folder
        self._why = why
        self._services = services
        self._stop = asyncio.Event()
        self._force = asyncio.Event()
        self._postgres = KeptPostgres(folder)
        self._serve = self._child("API server", ["serve"])
        self._worker = self._child(
            "worker",
            ["worker", *(services or [DEMO_SERVICE])],
            without=OF_THE_CONTROL_PLANE,
            on_reaped=self._worker_died,
        )
        self._death_reports: set[asyncio.Task[None]] = set()
        self._dev_key: DevKey | None = None
        self._has_started = False

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._request_stop)
        try:
            await self._start()
            await self._first_of(self._stop.wait(), self._given_up())
        finally:
            await self._shut_down()
        if self._anyone_gave_up():
            raise Misconfigured("a process could not start; its error is above")
        if self._force.is_set():
            raise typer.Exit(_EXIT_FORCED)

    async def _start(self) -> None:
        say(f"data folder: {self._folder} ({self._why})")
        await self._postgres.start()
        self._has_started = True
        await self._migrate()
        self._make_folders()
        await self._bootstrap()
        async with contextlib.AsyncExitStack() as closing:
            db = Connection(self._postgres.dsn, name="up")
            closing.push_async_callback(db.close)
            boot_before = await newest_boot(db)
            self._serve.start()
            self._worker.start()
            await self._first_of(self._ready(db, boot_before), self._stop.wait(), self._given_up())
        if not self._stop.is_set() and not self._anyone_gave_up():
            self._introduce()

    async def _migrate(self) -> None:
        try:
            applied = await migrate(self._postgres.dsn)
        except DatabaseBeforeFirstRelease as error:
            raise Misconfigured(
                f"the database in {self._folder} was made by a development version of Coatcheck "
                "before 0.1.0, and cannot be upgraded; nothing in it was changed. Remove that "
                "folder to begin anew: all jobs, keys and files in it are lost. Or name another "
                "folder with --data"
            ) from error
        for step in applied:
            say(f"applied schema step {step}")

    async def _bootstrap(self) -> None:
        pepper, is_another = keep_pepper(self._folder, self._settings.key_pepper)
        if is_another:
            say("COATCHECK_KEY_PEPPER has changed: API keys created before are no longer valid")
        self._environment["COATCHECK_KEY_PEPPER"] = pepper
        self._environment["COATCHECK_SECRET_KEYS"] = keep_secret_keys(
            self._folder, self._settings.secret_keys
        )
        self._environment |= keep_secret(self._folder, self._environment)
        if not self._settings.public_url:
            self._environment[_PUBLIC_URL] = self._url
        # Commands in this folder, or with --data, use this server.
        data_dir.write(self._folder / data_dir.ADDRESS, self._url)
        preset = self._settings.dev_key
        self._dev_key = await bootstrap(
            self._postgres.dsn, self._folder, pepper=pepper, preset=preset
        )

    async def _shut_down(self) -> None:
        stopping = asyncio.create_task(self._stop_in_order())
        await self._first_of(asyncio.shield(stopping), self._force.wait())
        if not stopping.done():
            say("killing all processes")
            self._worker.kill()
            self._serve.kill()
        await stopping
        self._say_stopping("stopped")

    async def _stop_in_order(self) -> None:
        seconds = self._settings.drain_seconds + _STOP_MARGIN_SECONDS
        async with contextlib.AsyncExitStack() as stops:  # in reverse order, even if one fails
            stops.push_async_callback(self._stop_postgres)
            stops.push_async_callback(self._finish_death_reports)
            stops.push_async_callback(self._stop_child, self._serve, seconds)
            stops.push_async_callback(self._stop_child, self._worker, seconds)

    async def _stop_child(self, child: Child, seconds: float) -> None:
        self._say_stopping(f"stopping the {child.name}")
        await child.stop(seconds)

    async def _finish_death_reports(self) -> None:
        reports = list(self._death_reports)
        if reports and not self._force.is_set():
            await asyncio.wait(reports, timeout=_DEATH_REPORT_SECONDS_MAX)
        for task in reports:
            task.cancel()
        await asyncio.gather(*reports, return_exceptions=True)

    async def _stop_postgres(self) -> None:
        self._say_stopping("stopping PostgreSQL")
        await self._postgres.stop("immediate" if self._force.is_set() else "fast")

    def _say_stopping(self, text: str) -> None:
        """Says nothing if nothing was started: it would read as if another server were stopped."""
        if self._has_started:
            say(text)

    def _request_stop(self) -> None:
        if self._stop.is_set():
            self._force.set()
        self._stop.set()

    def _worker_died(self, process: UUID) -> None:
        """Record the death of a reaped worker, so that its jobs start again at once. The restart of
        the worker does not wait for it."""
        task = asyncio.create_task(self._report_death(process), name="report a dead worker")
        self._death_reports.add(task)
        task.add_done_callback(self._death_reports.discard)

    async def _report_death(self, process: UUID) -> None:
        db = Connection(self._postgres.dsn, name="up")
        try:
            failures = 0
            while True:
                try:
                    await declare_dead(db, await workers_of_process(db, process))
                except (DatabaseUnavailable, OutcomeUnknown):
                    await asyncio.sleep(DATABASE_BACKOFF.delay(failures, random.random()))
                    failures += 1
                else:
                    return
        finally:
            await db.close()

    def _child(
        self,
        name: str,
        arguments: list[str],
        *,
        without: frozenset[str] = frozenset(),
        on_reaped: Callable[[UUID], None] = lambda _: None,
    ) -> Child:
        def environment() -> dict[str, str]:
            # Read at every start: an adopted PostgreSQL may have its socket in another folder.
            whole = self._environment | {"COATCHECK_DATABASE_URL": self._postgres.dsn}
            return {name: value for name, value in whole.items() if name not in without}

        return Child(name, arguments, environment, on_reaped)

    def _make_folders(self) -> None:
        (self._folder / "blobs").mkdir(mode=0o700, exist_ok=True)

    async def _ready(self, db: Connection, boot_before: int) -> None:
        """Return when the server is ready and the worker has registered."""
        await self._answering()
        while True:
            with contextlib.suppress(DatabaseUnavailable):
                if await newest_boot(db) > boot_before:
                    return
            await asyncio.sleep(_READY_LOOK_SECONDS)

    async def _answering(self) -> None:
        async with httpx2.AsyncClient(
            verify=trusted_authorities(trust_env=False), trust_env=False
        ) as client:
            while True:
                with contextlib.suppress(httpx2.HTTPError):
                    answer = await client.get(f"{self._url}/readyz", timeout=5)
                    if answer.is_success:
                        return
                await asyncio.sleep(_READY_LOOK_SECONDS)

    async def _given_up(self) -> None:
        await self._first_of(self._serve.gave_up.wait(), self._worker.gave_up.wait())

    def _anyone_gave_up(self) -> bool:
        return self._serve.gave_up.is_set() or self._worker.gave_up.is_set()

    @staticmethod
    async def _first_of(*waits: Coroutine[Any, Any, Any] | asyncio.Future[Any]) -> None:
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def _url(self) -> str:
        host = self._settings.host
        if host in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not listened on
            host = "127.0.0.1" if host == "0.0.0.0" else "::1"  # noqa: S104
        return f"http://{f'[{host}]' if ':' in host else host}:{self._settings.port}"

    def _introduce(self) -> None:
        assert self._dev_key is not None
        command, data = own_command(), shlex.quote(str(self._folder))
        services = ", ".join(self._services) or "built-in demo (no service given)"
        rows = [
            ("API", f"{self._url}  (/docs /openapi.json /healthz /readyz /metrics)"),
            ("dashboard", f"{self._url}/ui/  (sign in with the API key)"),
            ("API key", _shown_key(self._dev_key)),
            ("services", services),
            *self._shown_models(),
            *self._shown_speech(),
            ("data", str(self._folder)),
            ("database", self._postgres.dsn),
            ("blobs", _shown_blobs(self._settings.blob_url)),
            ("database log", str(self._postgres.log_path)),
        ]
        out.print("\n[bold green]Coatcheck is ready.[/bold green]")
        for name, value in rows:
            out.print(f"  [dim]{name:<13}[/dim]", end="")
            out.print(value, markup=False)
        out.print("\nTry it in another terminal:")
        for line in self._export_lines():
            out.print(f"  {line}", markup=False)
        message = shlex.quote("{}" if self._services else '{"message": "hello"}')
        key = shlex.quote(str(self._dev_key.path))
        path = "SERVICE/async/PATH" if self._services else "demo/async/echo"
        url = f"{self._url}/api/v1/orgs/{DEFAULT_ORG}/services/{path}?wait=10"
        out.print(
            f'  curl -s -H "Authorization: Bearer $(cat {key})" '
            f"-H 'Content-Type: application/json' -d {message} '{url}'",
            markup=False,
        )
        endpoint = "SERVICE/PATH" if self._services else "demo.post__echo"
        out.print(f"  {command} submit {endpoint} {message} --wait --data {data}", markup=False)
        out.print(f"  curl {self._url}/readyz", markup=False)
        out.print("\nCtrl-C stops everything.\n")

    def _export_lines(self) -> list[str]:
        """What to set so that clients find this server, if it is not at the default address."""
        from coatcheck.client.request_headers import DEFAULT_URL, URL_VARIABLE

        return [] if self._url == DEFAULT_URL else [f"export {URL_VARIABLE}={self._url}"]

    def _shown_speech(self) -> list[tuple[str, str]]:
        """The speech target, and how to get a user token for it."""
        target = self._settings.speech_target
        if target is None or target.target is None:
            return []
        where = target.target.get("url") or target.target["adapter"]
        return [("speech", f"{where}  (user token: {own_command()} token --user NAME)")]

    def _shown_models(self) -> list[tuple[str, str]]:
        """The LLM targets, and the addresses that LLM clients use."""
        urls = ", ".join(target.url for target in self._settings.llm_targets)
        clients = f"Ollama clients: {self._url}, OpenAI clients: {self._url}/v1"
        return [("models", f"{urls}  ({clients})")] if urls else []


def _shown_blobs(url: str) -> str:
    """The location of the blobs, without credentials that a URL may contain."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return unquote(parts.path)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"


def _shown_key(key: DevKey) -> str:
    """The key itself only at the first start and only on a terminal: a file, a pipe or a journal
    keeps it for others to read."""
    if key.is_revoked:
        return f"revoked; to get a new one, delete {key.path} and start again"
    # Not Rich's idea of a terminal: FORCE_COLOR makes it treat a file as one.
    if key.is_new and sys.stdout.isatty():
        return f"{key.text}  (shown only once; stored in {key.path})"
    return f"in {key.path}  (to show it: cat {shlex.quote(str(key.path))})"
