"""The Procrastinate app that its client and its worker share."""

from typing import Any

import procrastinate
from procrastinate.tasks import Task

from bench.recorder import Recorder


def make_app(
    address: str, *, connections: int, recorder: Recorder | None = None
) -> tuple[procrastinate.App, Task[Any, Any, Any]]:
    """An app with the no-op task. Only a worker passes a recorder: a client runs no handler."""
    app = procrastinate.App(
        connector=procrastinate.PsycopgConnector(
            conninfo=address, min_size=connections, max_size=connections
        )
    )

    @app.task(name="noop")
    async def noop(n: int, pad: str) -> dict[str, int]:
        assert recorder is not None
        recorder.job_started(n)
        return {"n": n}

    return app, noop
