"""A process of these tests: ``python -m tests.e2e.faults.process ROLE [argument]``.

Roles: ``worker`` works, ``upkeep`` keeps up, ``submit`` and ``cancel`` are what a server
does. Settings come from the environment, as for the real commands. What happens is said on
stdout, one JSON object a line.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

from coatcheck import Engine, Settings
from coatcheck.cli.process import prepare, run_until_told
from coatcheck.upkeep import Upkeep
from coatcheck.worker.agent import Worker
from tests.e2e.faults.services import lab

NAME_VARIABLE = "LAB_WORKER_NAME"


def say(event: str, **fields: object) -> None:
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


async def work(settings: Settings, stop: asyncio.Event) -> None:
    worker = Worker(settings, [lab], name=os.environ.get(NAME_VARIABLE, ""))

    async def announce() -> None:
        await worker.ready.wait()
        say("ready", boot=worker.boot, clock=time.time())

    async def stop_when_told() -> None:
        await stop.wait()
        worker.stop()

    tasks = [asyncio.create_task(announce()), asyncio.create_task(stop_when_told())]
    try:
        await worker.run()
    finally:
        for task in tasks:
            task.cancel()
    say("ended", rejected=worker.rejected)


async def keep_up(settings: Settings, stop: asyncio.Event) -> None:
    upkeep = Upkeep(settings)
    upkeep.start()
    say("ready")
    await stop.wait()
    await upkeep.stop()
    say("ended")


async def submit(settings: Settings, submissions: list[dict[str, object]]) -> None:
    async with Engine(settings, [lab]) as engine:
        say("ready")
        for submission in submissions:
            ticket = await engine.submit(**submission)  # type: ignore[arg-type]
            say("acknowledged", id=ticket.id, created=ticket.created)


async def cancel(settings: Settings, job_id: str) -> None:
    async with Engine(settings, [lab]) as engine:
        say("ready")
        view = await engine.cancel(job_id)
        say("acknowledged", id=job_id, state=view.state)


def main() -> None:
    role, *arguments = sys.argv[1:]
    settings = Settings.from_environment()
    prepare(settings)
    match role:
        case "worker":
            run_until_told(lambda stop: work(settings, stop))
        case "upkeep":
            run_until_told(lambda stop: keep_up(settings, stop))
        case "submit":
            run_until_told(lambda _: submit(settings, json.loads(arguments[0])))
        case "cancel":
            run_until_told(lambda _: cancel(settings, arguments[0]))
        case _:
            raise SystemExit(f"there is no role {role}")


if __name__ == "__main__":
    main()
