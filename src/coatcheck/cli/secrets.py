"""``coatcheck secrets``: the keys that seal the secrets of registered services."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import typer

from coatcheck.cli.common_options import JsonOption
from coatcheck.cli.console import out
from coatcheck.cli.data_dir import DataOption, settings_for
from coatcheck.cli.errors import EXIT_FAILED, Misconfigured, reporting_errors
from coatcheck.encoding import encode
from coatcheck.engine.service_secrets import Resealer, SealingState
from coatcheck.store.line import Line

app: Final = typer.Typer(
    name="secrets", no_args_is_help=True, help="Seal the secrets of services with another key."
)


@app.callback()
def _group() -> None:
    """Seal the secrets of services with another key."""


@app.command()
@reporting_errors
def reseal(as_json: JsonOption = False, data: DataOption = None) -> None:
    """Seal all secrets of services with the first key of COATCHECK_SECRET_KEYS.

    Servers and workers do the same by themselves, within half a minute; this does
    it at once, and says what is left. Exit code 1 if anything is: then a key is
    missing, or a service has to be registered again.
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
        out.print(f"{resealed} sealed anew; {state.current} are sealed with the first key.")
        if state.is_done:
            out.print("No other key is needed.")
        for key_id, secrets in state.locked.items():
            out.print(f"{secrets} need the key {key_id}, which is not set.")
        if state.old:
            out.print(f"{state.old} cannot be opened: register their services again.")
    if not state.is_done:
        raise typer.Exit(EXIT_FAILED)


async def _reseal(data: Path | None) -> tuple[int, SealingState]:
    settings = settings_for(data)
    line = Line(settings.database_url, name="reseal")
    try:
        resealer = Resealer(settings, line)
        if not resealer.sealer.key_ids:
            raise Misconfigured(
                "COATCHECK_SECRET_KEYS is not set\nIts first key is the one to seal with."
            )
        resealed = await resealer.reseal()
        while sealed := await resealer.seal_plain():
            resealed += sealed
        return resealed, await resealer.state()
    finally:
        await line.close()
