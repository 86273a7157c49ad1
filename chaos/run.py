"""One chaos run, from its start to its verdict."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from chaos import report
from chaos.checker.check import check
from chaos.checker.evidence import Evidence
from chaos.checker.finding import Verdict
from chaos.checker.forgetting import forget_and_look
from chaos.deployment import Deployment
from chaos.faults import Striker
from chaos.history import EXECUTIONS, History, read
from chaos.load.load import Load
from chaos.options import REPORTS, Options
from chaos.progress import print_progress, say
from chaos.sampler import Sampler
from chaos.schedule import plan
from chaos.world import World

HISTORY: Final = "history.ndjson"


@dataclass(frozen=True)
class Place:
    """The folders of a run's data and of its report."""

    folder: Path
    report: Path


async def run(options: Options) -> bool:
    """Load, faults, settling, checks, report. Returns whether a valid run found nothing."""
    place = _place(options)
    history = History(place.folder / HISTORY)
    try:
        verdict = await _verdict(options, place, history)
    except BaseException:
        say(f"its data: {place.folder}")
        raise
    finally:
        history.close()
        _keep_notes(place)
    path = report.write(
        place.report,
        verdict,
        read(place.folder / HISTORY),
        seed=options.seed,
        command=f"python -m chaos {' '.join(sys.argv[1:])}",
        minutes=options.minutes,
    )
    say(report.summary(verdict, seed=options.seed, minutes=options.minutes))
    say(f"report: {path}")
    if verdict.passed and not options.keep and options.folder is None:
        shutil.rmtree(place.folder)
    else:
        say(f"its data: {place.folder}")
    return verdict.passed


async def _verdict(options: Options, place: Place, history: History) -> Verdict:
    async with (
        World(history, options.seed) as world,
        Deployment(place.folder, seed=options.seed, history=history, world=world) as deployment,
    ):
        say(f"up: {', '.join(deployment.urls)}; seed {options.seed}; data in {place.folder}")
        load = Load(
            deployment.urls,
            deployment.keys,
            world,
            history,
            options.seed,
            options.surfaces,
            options.rate,
        )
        async with Sampler(deployment.dsn, history):
            await _under_fire(options, deployment, load, history)
            history.note("stage", name="settle")
            say("the faults end; waiting until every job has finished")
            await deployment.settle()
            await load.settle(options.settle_seconds)
        history.note("stage", name="check")
        say("checking")
        async with Evidence.gathered(
            folder=place.folder,
            dsn=deployment.dsn,
            history=history.path,
            urls=deployment.urls,
            keys=deployment.keys,
            canaries=load.canaries,
            asked=options.only,
            surfaces=options.surfaces,
        ) as evidence:
            verdict = await check(evidence)
            history.note("stage", name="forget")
            say("deleting everything")
            return await forget_and_look(evidence, verdict)


async def _under_fire(
    options: Options, deployment: Deployment, load: Load, history: History
) -> None:
    """Run the load for its time, and inject the faults of the plan."""
    faults = plan(options.seed, options.seconds, only=options.only)
    striker = Striker(deployment, faults, history)
    until = asyncio.Event()
    history.note("stage", name="load")
    asyncio.get_running_loop().call_later(options.seconds, until.set)
    async with asyncio.TaskGroup() as acting:
        progress = acting.create_task(print_progress(history.path, striker, options.seconds))
        acting.create_task(load.run(until))
        acting.create_task(striker.run(until))
        await until.wait()
        progress.cancel()


def _place(options: Options) -> Place:
    stamp = datetime.now(UTC).strftime("%Y-%m-%d-%H%M%S")
    folder = options.folder or Path(tempfile.mkdtemp(prefix="coatcheck-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o711)  # PostgreSQL's account needs access to its own folder
    return Place(folder.resolve(), options.report or REPORTS / f"{stamp}-{options.seed}")


def _keep_notes(place: Place) -> None:
    """Keep the history, however the run ends."""
    place.report.mkdir(parents=True, exist_ok=True)
    for name in (HISTORY, EXECUTIONS):
        if (place.folder / name).exists():
            shutil.copy(place.folder / name, place.report / name)
