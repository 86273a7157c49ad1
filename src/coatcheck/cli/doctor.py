"""``coatcheck doctor``: looks at everything a process needs, and says what to do about the rest."""

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

from coatcheck.blobs import BlobContainer, Patience
from coatcheck.cli.common_options import JsonOption
from coatcheck.cli.console import out
from coatcheck.cli.data_dir import DataOption, settings_for
from coatcheck.cli.error_texts import IS_IT_RUNNING
from coatcheck.cli.errors import EXIT_FAILED, reporting_errors
from coatcheck.domain.errors import (
    CoatcheckError,
    DatabaseBeforeFirstRelease,
    SchemaMismatch,
    SettingsInvalid,
)
from coatcheck.domain.limits import UNSERVED_ENDPOINT_SECONDS
from coatcheck.encoding import encode
from coatcheck.product import Finding, Products, Verdict
from coatcheck.settings import Settings, likely_typos
from coatcheck.store.diagnosis import VERSION_MIN, Diagnosis
from coatcheck.telemetry.redaction import redact
from coatcheck.version import __version__

CLOCK_SECONDS_MAX: Final = 5.0
_BLOB_SECONDS_MAX: Final = 10.0
_NAMES_SHOWN_MAX: Final = 10
_NO_WORK: Final = "coatcheck-doctor"
_IMPATIENT: Final = Patience(retries=0)
_DATABASE_HINT: Final = (
    f"{IS_IT_RUNNING} Without that variable it is the one of `coatcheck up`, whose data folder "
    "--data names."
)

_SECRET_KEYS: Final = "secret keys"  # noqa: S105 - what a finding is about
_LIBRARIES: Final = ("asyncpg", "httptools", "msgspec", "obstore", "uvicorn", "uvloop")
_POOLER_HINT: Final = (
    "Connect to PostgreSQL directly, or through a pooler in session mode: in transaction mode, "
    "sessions change under our feet."
)


_STYLES: Final = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "bold red"}


@reporting_errors
def doctor(as_json: JsonOption = False, data: DataOption = None) -> None:
    """Check settings, database, blob store, clock and versions. Exit code 1 if anything fails."""
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
    findings += [finding async for finding in _database(settings)]
    findings.append(await _blobs(settings))
    try:
        products = Products.load(settings.products)
    except SettingsInvalid as error:
        hint = "See docs/reference/settings.md. The checks of products need all of them."
        return [*findings, Finding("products", Verdict.FAIL, str(error), hint)]
    for product in products:
        if product.checks is not None:
            findings += await product.checks(settings)
    findings += await _remotes(settings, products)
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
        # No failure: a worker's machine need not have what only servers use.
        missing = str(error).partition("\n")[0]
        found = f"enough for a worker, but `coatcheck serve` does not start: {missing}"
        return Finding("settings", Verdict.WARN, found, hint)
    if not typos:
        return Finding("settings", Verdict.OK, "valid")
    found = f"valid, but no setting is named {' or '.join(typos)}"
    return Finding("settings", Verdict.WARN, found, hint)


async def _database(settings: Settings) -> AsyncIterator[Finding]:
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
                yield await _notifications(diagnosis)
                yield await _advisory_locks(diagnosis)
            yield await _clock(diagnosis)
    except CoatcheckError as error:
        yield Finding("database", Verdict.FAIL, str(error), _DATABASE_HINT)


async def _server(diagnosis: Diagnosis) -> Finding:
    server = await diagnosis.server()
    found = f"PostgreSQL {server.version}"
    if server.major < VERSION_MIN:
        hint = f"Coatcheck needs PostgreSQL {VERSION_MIN} or newer."
        return Finding("database", Verdict.FAIL, found, hint)
    if server.read_only:
        hint = "Name the primary in COATCHECK_DATABASE_URL, not a standby."
        return Finding("database", Verdict.FAIL, f"{found}, read-only", hint)
    return Finding("database", Verdict.OK, found)


async def _schema(diagnosis: Diagnosis) -> Finding:
    try:
        return Finding("schema", Verdict.OK, f"at {await diagnosis.schema()}")
    except DatabaseBeforeFirstRelease as error:
        return Finding("schema", Verdict.FAIL, str(error), "Begin with an empty database.")
    except SchemaMismatch as error:
        hint = "Run `coatcheck migrate`, or the version of Coatcheck that the database is at."
        return Finding("schema", Verdict.FAIL, str(error), hint)


async def _notifications(diagnosis: Diagnosis) -> Finding:
    try:
        took = await diagnosis.notification_seconds()
    except TimeoutError:
        return Finding("LISTEN/NOTIFY", Verdict.FAIL, "no notification arrived", _POOLER_HINT)
    return Finding("LISTEN/NOTIFY", Verdict.OK, f"arrives in {took * 1000:.1f} ms")


async def _advisory_locks(diagnosis: Diagnosis) -> Finding:
    if await diagnosis.holds_sessions():
        return Finding("advisory locks", Verdict.OK, "hold between transactions")
    found = "do not hold between transactions"
    return Finding("advisory locks", Verdict.FAIL, found, _POOLER_HINT)


async def _clock(diagnosis: Diagnosis) -> Finding:
    ahead = await diagnosis.clock_seconds_ahead()
    found = f"the database's is {abs(ahead):.3f} s {'ahead' if ahead > 0 else 'behind'}"
    if abs(ahead) > CLOCK_SECONDS_MAX:
        hint = (
            "Harmless to jobs: only the database's clock decides about them. But receivers refuse "
            "webhooks that a server signs minutes off, tokens and signed URLs end too early or too "
            "late, and times in the logs will not match the jobs' own; set the clock by NTP."
        )
        return Finding("clock", Verdict.WARN, found, hint)
    return Finding("clock", Verdict.OK, found)


async def _services(settings: Settings) -> list[Finding]:
    """What workers publish: where they disagree, and what no live worker publishes."""
    from coatcheck.domain.publications import by_endpoint, conflicts_of, described, unserved_of
    from coatcheck.store.line import Line
    from coatcheck.store.services import list_published

    line = Line(settings.database_url, name="doctor")
    try:
        published = await list_published(line)
    finally:
        await line.close()
    findings = []
    if conflicts := conflicts_of(published):
        workers = dict.fromkeys(name for each in conflicts for name in each.in_force.workers)
        found = (
            f"live workers publish different definitions of {described(conflicts)}; in force is "
            f"the newest, of {', '.join(workers)}"
        )
        hint = (
            "That is how a canary or a deployment looks while it goes on. Else stop the workers of "
            "the older code, or give the change a version of its own."
        )
        findings.append(Finding("services", Verdict.WARN, found, hint))
    if unserved := unserved_of(published):
        names = [each.spec.engine_endpoint for each in unserved]
        shown = ", ".join(names[:_NAMES_SHOWN_MAX])
        more = f" and {len(names) - _NAMES_SHOWN_MAX} more" if names[_NAMES_SHOWN_MAX:] else ""
        found = f"no live worker publishes {shown}{more}"
        hint = (
            "Their jobs are accepted, and wait. Start a worker, or take them out of the catalogue "
            "with `coatcheck services forget`; after "
            f"{UNSERVED_ENDPOINT_SECONDS // 86_400} days they are forgotten."
        )
        findings.append(Finding("services", Verdict.WARN, found, hint))
    if not findings:
        endpoints = len(by_endpoint(published))
        found = f"workers publish {endpoints} endpoints" if endpoints else "workers publish none"
        findings.append(Finding("services", Verdict.OK, found))
    return findings


async def _secrets(settings: Settings) -> Finding:
    """The keys that seal the secrets of services."""
    from coatcheck.engine.service_secrets import Resealer
    from coatcheck.store.line import Line

    line = Line(settings.database_url, name="doctor")
    try:
        resealer = Resealer(settings, line)
        state = await resealer.state()
    finally:
        await line.close()
    if state.locked:
        missing = ", ".join(f"{key} ({secrets})" for key, secrets in sorted(state.locked.items()))
        found = f"keys are missing that sealed secrets: {missing}"
        hint = "Jobs that need these secrets wait: put the key back into COATCHECK_SECRET_KEYS."
        return Finding(_SECRET_KEYS, Verdict.FAIL, found, hint)
    if state.plain:
        found = f"{state.plain} services hold their secrets as they are"
        hint = "Set COATCHECK_SECRET_KEYS, then run `coatcheck secrets reseal`."
        return Finding(_SECRET_KEYS, Verdict.FAIL, found, hint)
    if state.old:
        found = f"{state.old} of {state.old + state.current} secrets need an older key"
        hint = (
            "`coatcheck secrets reseal` seals them with the first one. Keep the others until then."
        )
        return Finding(_SECRET_KEYS, Verdict.WARN, found, hint)
    if not resealer.sealer.key_ids:
        return Finding(_SECRET_KEYS, Verdict.OK, "none is set, and no service has secrets")
    return Finding(_SECRET_KEYS, Verdict.OK, f"the first opens all {state.current} secrets")


async def _blobs(settings: Settings) -> Finding:
    try:
        async with asyncio.timeout(_BLOB_SECONDS_MAX):
            await BlobContainer.open(settings.blob_url, _IMPATIENT).probe()
    except Exception as error:  # noqa: BLE001 - each store fails in its own ways; all are findings
        said = redact(str(error)).strip().splitlines() or [type(error).__name__]
        hint = "Does COATCHECK_BLOB_URL name a place that this process may write to?"
        return Finding("blob store", Verdict.FAIL, said[0], hint)
    return Finding("blob store", Verdict.OK, "a probe was written, read and deleted")


async def _remotes(settings: Settings, products: Products) -> list[Finding]:
    """The operator's own. Each is asked about work that it cannot know."""
    from coatcheck.egress import guard_of
    from coatcheck.remotes import Remotes, Unclear
    from coatcheck.remotes.errors import RemoteMisdefined

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
            if isinstance(status, Unclear):
                hint = "It may be asleep: its jobs wait until it answers. Else look at its URL."
                findings.append(Finding(subject, Verdict.WARN, str(status.error), hint))
            else:
                findings.append(Finding(subject, Verdict.OK, f"{to.shown} answers"))
    return findings


def _show(findings: list[Finding]) -> None:
    table = Table("check", "", "found", show_edge=False)
    for finding in findings:
        found = Text(finding.found)
        if finding.hint:
            found.append(f"\n{finding.hint}", style="dim")
        verdict = Text(finding.verdict.value, style=_STYLES[finding.verdict])
        table.add_row(finding.subject, verdict, found)
    out.print(table, soft_wrap=False)
