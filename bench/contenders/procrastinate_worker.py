"""A Procrastinate worker process with the no-op task."""

import logging
import os

import uvloop

from bench.contenders.procrastinate import WORKER_CONCURRENCY
from bench.contenders.procrastinate_app import make_app
from bench.recorder import Recorder


async def main() -> None:
    app, _ = make_app(
        os.environ["BENCH_ADDRESS"],
        # One more for LISTEN, one for the heartbeat.
        connections=WORKER_CONCURRENCY + 2,
        recorder=Recorder.from_environment(),
    )
    async with app.open_async():
        await app.run_worker_async(
            concurrency=WORKER_CONCURRENCY, listen_notify=True, delete_jobs="never"
        )


if __name__ == "__main__":
    logging.getLogger().setLevel(logging.WARNING)
    uvloop.run(main())
