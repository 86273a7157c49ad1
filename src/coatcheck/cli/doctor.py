"""``coatcheck doctor``: checks everything a process needs, and says how to fix what fails."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import AsyncIterator
from importlib import metadata
from pathlib import Path
from typing import Final

import typer
from rich.table import Table
from rich.text import Text

from coatcheck.blobs import BlobContainer, BlobRetryPolicy
from coatcheck.cli.command_errors import EXIT_FAILED, reporting_errors
from coatcheck.cli.console import out
from coatcheck.cli.data_dir import DataOption, settings_for
from coatcheck.cli.error_texts import IS_IT_RUNNING
from coatcheck.cli.options import JsonOption
from coatcheck.db.diagnosis import VERSION_MIN, Diagnosis
from coatcheck.domain.errors import (
    CoatcheckError,
    DatabaseBeforeFirstRelease,
    SchemaMismatch,
    SettingsInvalid,
)
from coatcheck.domain.limits import SERVER_CONNECTIONS_MAX, UNSERVED_ENDPOINT_SECONDS
from coatcheck.encoding import encode
from coatcheck.product import Finding, Products, Verdict
from coatcheck.settings import Settings, likely_typos
from coatcheck.telemetry.logs import redact
from coatcheck.version import __version__

CLOCK_SECONDS_MAX: Final = 5.0
_BLOB_SECONDS_MAX: Final = 10.0
_NAMES_SHOWN_MAX: Final = 10
_NO_WORK: Final = "coatcheck-doctor"
_IMPATIENT: Final = BlobRetryPolicy(retries=0)
_DATABASE_HINT: Final = (
    f"{IS_IT_RUNNING} Without that setting, doctor checks the database of `coatcheck up`; name its "
    "data folder with --data."
)

_SECRET_KEYS: Final = "secret keys"  # noqa: S105 - the name of a check
_LIBRARIES: Final = ("asyncpg", "httptools", "msgspec", "obstore", "uvicorn", "uvloop")
_POOLER_HINT: Final = (
    "Connect to PostgreSQL directly, or through a pooler in session mode. Transaction mode does "
    "not keep sessions."
)


_STYLES: Final = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "bold red"}


@reporting_errors
def doctor(as_json: JsonOption = False, data: DataOption = None) -> None:
    """Check settings, database, blob store, clock and versions. Exit code 1 if a check fails."""
    findings = asyncio.run(_examine(data))
    if as_json:
        for finding in findings:
            typer.echo(encode(finding))
    else:
        _show(findings)
    if any(finding.verdict is Verdict.FAIL for finding in findings):
        raise typer.Exit(EXIT_FAILED)


async def _examine(data: Path | None) -> list[Finding]:
    findings = [_versions()]
    try:
        settings = settings_for(data)
    except SettingsInvalid as error:
        hint = "See docs/reference/settings.md. The other checks need valid settings."
        return [*findings, Finding("settings", Verdict.FAIL, str(error), hint)]
    findings.append(_settings(settings))
    findings += [finding async for finding in check_database(settings)]
    findings.append(await _blobs(settings))
    try:
        products = Products.load(settings.products)
    except SettingsInvalid as error:
        hint = "See docs/reference/settings.md. The checks of products need all of them."
        return [*findings, Finding("products", Verdict.FAIL, str(error), hint)]
    for product in products:
        if product.checks is not None:
            findings += await product.checks(settings)
    findings += await check_remotes(settings, products)
    return findings


def _versions() -> Finding:
    libraries = ", ".join(f"{name} {metadata.version(name)}" for name in _LIBRARIES)
    return Finding(
        "versions",
        Verdict.OK,
        f"coatcheck {__version__}, Python {platform.python_version()}, {libraries}",
    )


def _settings(settings: Settings) -> Finding:
    typos = likely_typos(os.environ)
    hint = "Did you mean " + " or ".join(typos.values()) + "?" if typos else ""
    try:
        settings.require_for_serving()
    except SettingsInvalid as error:
        # Only a warning: a worker's machine does not need the settings of a server.
        missing = str(error).partition("\n")[0]
        found = f"valid for a worker, but `coatcheck serve` cannot start: {missing}"
        return Finding("settings", Verdict.WARN, found, hint)
    if not typos:
        return Finding("settings", Verdict.OK, f"valid{_several(settings.processes)}")
    found = f"valid, but these are not settings: {', '.join(typos)}"
    return Finding("settings", Verdict.WARN, found, hint)


def _several(processes: int) -> str:
    """What several processes of a server mean for its bounds."""
    if processes == 1:
        return ""
    return (
        f"; {processes} processes of `coatcheck serve` have a server's bounds together, and up to "
        f"{processes * SERVER_CONNECTIONS_MAX} connections to PostgreSQL"
    )


async def check_database(settings: Settings) -> AsyncIterator[Finding]:
    try:
        async with Diagnosis.of(settings.database_url) as diagnosis:
            server = await _server(diagnosis)
            yield server
            schema = await _schema(diagnosis)
            yield schema
            if schema.verdict is Verdict.OK:
                for finding in await _services(settings):
                    yield finding
                yield await _secrets(settings)
            if server.verdict is Verdict.OK:  # a standby refuses to LISTEN
                yield await check_notifications(diagnosis)
                yield await check_advisory_locks(diagnosis)
            yield await check_clock(diagnosis)
    except CoatcheckError as error:
        yield Finding("database", Verdict.FAIL, str(error), _DATABASE_HINT)


async def _server(diagnosis: Diagnosis) -> Finding:
    server = await diagnosis.server()
    found = f"PostgreSQL {server.version}"
    if server.major < VERSION_MIN:
        hint = f"Coatcheck needs PostgreSQL {VERSION_MIN} or newer."
        return Finding("database", Verdict.FAIL, found, hint)
    if server.read_only:
        hint = "Set COATCHECK_DATABASE_URL to the primary, not a standby."
        return Finding("database", Verdict.FAIL, f"{found}, read-only", hint)
    return Finding("database", Verdict.OK, found)


async def _schema(diagnosis: Diagnosis) -> Finding:
    try:
        return Finding("schema", Verdict.OK, f"at {await diagnosis.schema()}")
    except DatabaseBeforeFirstRelease as error:
        return Finding("schema", Verdict.FAIL, str(error), "Begin with an empty database.")
    except SchemaMismatch as error:
        hint = "Run `coatcheck migrate`, or use the version of Coatcheck that matches the database."
        return Finding("schema", Verdict.FAIL, str(error), hint)


async def check_notifications(diagnosis: Diagnosis) -> Finding:
    try:
        took = await diagnosis.notification_seconds()
    except TimeoutError:
        return Finding("LISTEN/NOTIFY", Verdict.FAIL, "no notification arrived", _POOLER_HINT)
    return Finding("LISTEN/NOTIFY", Verdict.OK, f"round trip in {took * 1000:.1f} ms")


async def check_advisory_locks(diagnosis: Diagnosis) -> Finding:
    if await diagnosis.holds_sessions():
        return Finding("advisory locks", Verdict.OK, "held between transactions")
    found = "lost between transactions"
    return Finding("advisory locks", Verdict.FAIL, found, _POOLER_HINT)


async def check_clock(diagnosis: Diagnosis) -> Finding:
    ahead = await diagnosis.clock_seconds_ahead()
    found = f"the database is {abs(ahead):.3f} s {'ahead' if ahead > 0 else 'behind'}"
    if abs(ahead) > CLOCK_SECONDS_MAX:
        hint = (
            "Synchronise the clocks with NTP. Jobs are not affected: they use only the database's "
            "clock. But receivers refuse webhooks signed minutes off, tokens and signed URLs "
            "expire too early or too late, and log times do not match the times of jobs."
        )
        return Finding("clock", Verdict.WARN, found, hint)
    return Finding("clock", Verdict.OK, found)


async def _services(settings: Settings) -> list[Finding]:
    """Endpoints that workers define differently, and endpoints without a live worker."""
    from coatcheck.core.queries.services import list_published
    from coatcheck.db.connection import Connection
    from coatcheck.domain.catalogue import by_endpoint, conflicts_of, described, unserved_of

    db = Connection(settings.database_url, name="doctor")
    try:
        published = await list_published(db)
    finally:
        await db.close()
    findings = []
    if conflicts := conflicts_of(published):
        workers = dict.fromkeys(name for each in conflicts for name in each.in_force.workers)
        found = (
            f"live workers publish different definitions of {described(conflicts)}; the newest "
            f"applies, of {', '.join(workers)}"
        )
        hint = (
            "This is normal during a canary or a deployment. Otherwise stop the workers with the "
            "older code, or publish the change as a new version."
        )
        findings.append(Finding("services", Verdict.WARN, found, hint))
    if unserved := unserved_of(published):
        names = [each.spec.engine_endpoint for each in unserved]
        shown = ", ".join(names[:_NAMES_SHOWN_MAX])
        more = f" and {len(names) - _NAMES_SHOWN_MAX} more" if names[_NAMES_SHOWN_MAX:] else ""
        found = f"no live worker publishes {shown}{more}"
        hint = (
            "Their jobs are accepted and wait. Start a worker, or remove the endpoints with "
            "`coatcheck services forget`. They are removed after "
            f"{UNSERVED_ENDPOINT_SECONDS // 86_400} days."
        )
        findings.append(Finding("services", Verdict.WARN, found, hint))
    if not findings:
        endpoints = len(by_endpoint(published))
        noun = "endpoint" if endpoints == 1 else "endpoints"
        found = f"workers publish {endpoints or 'no'} {noun}"
        findings.append(Finding("services", Verdict.OK, found))
    return findings


async def _secrets(settings: Settings) -> Finding:
    """The keys that encrypt the secrets of services."""
    from coatcheck.core.service_secrets import Resealer
    from coatcheck.db.connection import Connection

    db = Connection(settings.database_url, name="doctor")
    try:
        resealer = Resealer(settings, db)
        state = await resealer.state()
    finally:
        await db.close()
    if state.locked:
        missing = ", ".join(f"{key} ({secrets})" for key, secrets in sorted(state.locked.items()))
        found = f"secrets are encrypted with missing keys: {missing}"
        hint = "Jobs that need these secrets wait. Add the key to COATCHECK_SECRET_KEYS again."
        return Finding(_SECRET_KEYS, Verdict.FAIL, found, hint)
    if state.plain:
        found = f"services with unencrypted secrets: {state.plain}"
        hint = "Set COATCHECK_SECRET_KEYS, then run `coatcheck secrets reseal`."
        return Finding(_SECRET_KEYS, Verdict.FAIL, found, hint)
    if state.old:
        found = (
            f"{state.old} of {state.old + state.current} secrets are encrypted with an older key"
        )
        hint = "Run `coatcheck secrets reseal` to use the first key. Keep the others until then."
        return Finding(_SECRET_KEYS, Verdict.WARN, found, hint)
    if not resealer.sealer.key_ids:
        return Finding(_SECRET_KEYS, Verdict.OK, "not set, and no service has secrets")
    return Finding(_SECRET_KEYS, Verdict.OK, f"the first key decrypts all {state.current} secrets")


async def _blobs(settings: Settings) -> Finding:
    try:
        async with asyncio.timeout(_BLOB_SECONDS_MAX):
            await BlobContainer.open(settings.blob_url, _IMPATIENT).probe()
    except Exception as error:  # noqa: BLE001 - stores raise many kinds of errors; all are findings
        lines = redact(str(error)).strip().splitlines() or [type(error).__name__]
        hint = "Check that COATCHECK_BLOB_URL is correct and that this process may write there."
        return Finding("blob store", Verdict.FAIL, lines[0], hint)
    return Finding("blob store", Verdict.OK, "wrote, read and deleted a test blob")


async def check_remotes(settings: Settings, products: Products) -> list[Finding]:
    """The operator's remotes. Each is asked for the status of a job that does not exist."""
    from coatcheck.egress import guard_of
    from coatcheck.remotes import Remotes, RemoteUnclear
    from coatcheck.remotes.protocol import RemoteMisdefined

    try:
        targets = products.operator_remotes(settings)
    except SettingsInvalid as error:
        hint = "See docs/reference/remotes.md."
        return [Finding("remotes", Verdict.FAIL, str(error), hint)]
    findings = []
    async with Remotes(guard_of(settings)) as remotes:
        for name, to in targets.items():
            subject = f"remote {name}"
            try:
                remote = remotes.open(to.target, secret=to.secrets.get, by_operator=True)
                status = (await remote.status([_NO_WORK]))[_NO_WORK]
            except RemoteMisdefined as error:
                findings.append(Finding(subject, Verdict.FAIL, str(error)))
                continue
            if isinstance(status, RemoteUnclear):
                hint = "It may be asleep: its jobs wait until it answers. Otherwise check its URL."
                findings.append(Finding(subject, Verdict.WARN, str(status.error), hint))
            else:
                findings.append(Finding(subject, Verdict.OK, f"{to.shown} answers"))
    return findings


def _show(findings: list[Finding]) -> None:
    table = Table("check", "", "result", show_edge=False)
    for finding in findings:
        found = Text(finding.found)
        if finding.hint:
            found.append(f"\n{finding.hint}", style="dim")
        verdict = Text(finding.verdict.value, style=_STYLES[finding.verdict])
        table.add_row(finding.subject, verdict, found)
    out.print(table, soft_wrap=False)
