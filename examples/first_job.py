"""One job, from submission to result, in one process and one file.

    .venv/bin/python examples/first_job.py

It uses the PostgreSQL that COATCHECK_DATABASE_URL names, and brings it to this version's schema.
Without one it starts an embedded server on a folder that it removes at the end. In a deployment
the parts below are separate processes: `coatcheck worker`, and a program that submits jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from coatcheck import CoatcheckError, Engine, Job, JobView, Service, Settings
from coatcheck.db.embedded import EmbeddedPostgres
from coatcheck.db.migrate import migrate
from coatcheck.maintenance import MaintenanceRunner
from coatcheck.worker.worker import Worker

texts = Service("texts")


@texts.post("/count", timeout=30)
async def count(job: Job, text: str) -> dict[str, int]:
    words = text.split()
    await job.progress(0.5, f"{len(words)} words read")
    await job.log("counted", words=len(words))
    return {"words": len(words), "different": len(set(words))}


async def run_one_job(settings: Settings) -> JobView:
    await migrate(settings.database_url)
    worker = Worker(settings, [texts])
    maintenance = MaintenanceRunner(settings)
    async with Engine(settings, [texts]) as engine:
        working = asyncio.create_task(worker.run())
        maintenance.start()
        try:
            ticket = await engine.submit("texts.post__count", {"text": "to be or not to be"})
            print(f"ticket {ticket.id} is {ticket.state}")
            return await engine.wait(ticket.id)
        finally:
            worker.stop()
            await working
            await maintenance.stop()


@contextlib.contextmanager
def settings_to_use() -> Iterator[Settings]:
    if os.environ.get("COATCHECK_DATABASE_URL"):
        yield Settings.from_environment()
        return
    with tempfile.TemporaryDirectory() as folder:
        # As root, PostgreSQL runs as another user, which needs access to this folder.
        Path(folder).chmod(0o711)
        with EmbeddedPostgres(Path(folder, "data")) as postgres:
            # A blob container belongs to one database.
            yield Settings(
                database_url=postgres.dsn,
                blob_url=Path(folder, "blobs").as_uri(),
                temp_dir=Path(folder, "temp"),
            )


def main() -> int:
    try:
        with settings_to_use() as settings:
            job = asyncio.run(run_one_job(settings))
    except CoatcheckError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if job.result is None:
        print(f"the job is {job.state}: {job.error_code}: {job.error_message}", file=sys.stderr)
        return 1
    print(f"{job.state} after {job.attempts} attempt: {json.loads(job.result)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
