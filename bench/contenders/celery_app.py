"""The Celery app that its client and its worker share."""

from typing import Any

from celery import Celery, Task

from bench.recorder import Recorder

QUEUE = "celery"
SETTINGS = {
    "broker_pool_limit": 10,
    "task_ignore_result": False,
    "task_serializer": "json",
    "result_serializer": "json",
    "worker_prefetch_multiplier": 128,
    "worker_send_task_events": False,
    "task_send_sent_event": False,
}


def make_app(address: str, recorder: Recorder | None = None) -> tuple[Celery, Task[Any, Any]]:
    """An app with the no-op task. Only a worker passes a recorder: a client runs no handler."""
    # kombu and Celery name a unix socket's scheme differently; `address` is redis-py's unix://.
    socket_path = address.removeprefix("unix://")
    app = Celery(
        "bench", broker=f"redis+socket://{socket_path}", backend=f"redis+socket://{socket_path}"
    )
    app.conf.update(SETTINGS)

    @app.task(name="noop")
    def noop(n: int, pad: str) -> dict[str, int]:
        assert recorder is not None
        recorder.job_started(n)
        return {"n": n}

    return app, noop
