"""``coatcheck secrets``: re-encrypts the secrets of registered services."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import typer

from coatcheck.cli.console import out
from coatcheck.cli.data_dir import DataOption, settings_for
from coatcheck.cli.errors import EXIT_FAILED, Misconfigured, reporting_errors
from coatcheck.cli.options import JsonOption
from coatcheck.core.service_secrets import Resealer, SealingState
from coatcheck.db.connection import Connection
from coatcheck.encoding import encode

app: Final = typer.Typer(
    name="secrets",
    no_args_is_help=True,
    help="Re-encrypt the secrets of services with another key.",
)


@app.callback()
def _group() -> None:
    """Re-encrypt the secrets of services with another key."""


@app.command()
@reporting_errors
def reseal(as_json: JsonOption = False, data: DataOption = None) -> None:
    """Re-encrypt all secrets of services with the first key in COATCHECK_SECRET_KEYS.

    Servers and workers do the same within half a minute; this command does it at
    once and reports what is left. Exit code 1 if secrets are left: a key is missing,
    or a service must be registered again.
    """
    resealed, state = asyncio.run(_reseal(data))
    if as_json:
        typer.echo(
            encode(
                {
                    "resealed": resealed,
                    "current": state.current,
                    "old": state.old,
                    "locked": dict(state.locked),
                    "plain": state.plain,
                }
            )
        )
    else:
        out.print(f"Re-encrypted: {resealed}. Encrypted with the first key: {state.current}.")
        if state.is_done:
            out.print("No other key is needed.")
        for key_id, secrets in state.locked.items():
            out.print(f"Encrypted with the key {key_id}, which is not set: {secrets}.")
        if state.old:
            out.print(f"Cannot be decrypted: {state.old}. Register their services again.")
    if not state.is_done:
        raise typer.Exit(EXIT_FAILED)


async def _reseal(data: Path | None) -> tuple[int, SealingState]:
    settings = settings_for(data)
    db = Connection(settings.database_url, name="reseal")
    try:
        resealer = Resealer(settings, db)
        if not resealer.sealer.key_ids:
            raise Misconfigured(
                "COATCHECK_SECRET_KEYS is not set\nIts first key encrypts the secrets."
            )
        resealed = await resealer.reseal()
        while sealed := await resealer.seal_plain():
            resealed += sealed
        return resealed, await resealer.state()
    finally:
        await db.close()
