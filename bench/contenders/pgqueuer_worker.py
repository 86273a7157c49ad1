"""A PgQueuer worker process with the no-op handler."""

import asyncio
import json
import os
import signal

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job

from bench.contenders.pgqueuer import ENTRYPOINT, WORKER_BATCH
from bench.recorder import Recorder


async def main() -> None:
    recorder = Recorder.from_environment()
    connection = await asyncpg.connect(os.environ["BENCH_ADDRESS"])
    queuer = PgQueuer(AsyncpgDriver(connection))

    @queuer.entrypoint(ENTRYPOINT)
    async def noop(job: Job) -> None:
        recorder.job_started(json.loads(job.payload or b"{}")["n"])

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, queuer.shutdown.set)
    await queuer.run(batch_size=WORKER_BATCH)


if __name__ == "__main__":
    uvloop.run(main())
