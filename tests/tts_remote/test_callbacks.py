"""Who wants to be called back is, whatever the end."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from examples.tts_remote import Fault, TtsRemote
from tests.tts_remote.asking import Asking
from tests.waiting import eventually_async


class Receiver(ThreadingHTTPServer):
    """Answers with the statuses it is given, then with 204."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.received: list[dict[str, Any]] = []
        self.statuses: list[int] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/done?secret=1"

    async def got(self, calls: int) -> list[dict[str, Any]]:
        async def enough() -> bool:
            return len(self.received) >= calls

        await eventually_async(enough, f"it was called {calls} times")
        return self.received


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = self.server.statuses.pop(0) if self.server.statuses else 204
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()
        self.server.received.append({"path": self.path} | body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


async def test_a_completed_job_calls_back_once(
    remote: TtsRemote, asking: Asking, receiver: Receiver
) -> None:
    job_id = await asking.submit(callback_url=receiver.url)
    (told,) = await receiver.got(1)
    assert told == {"path": "/done?secret=1"} | await asking.status(job_id)
    assert told["status"] == "completed"

    async def noted() -> bool:
        return not remote.jobs.callback_due(job_id)

    await eventually_async(noted, "the call is noted")
    await remote.go_away()
    await remote.come_back()
    assert remote.jobs.undone() == []
    assert len(receiver.received) == 1


async def test_failed_and_cancelled_jobs_call_back_too(
    remote: TtsRemote, asking: Asking, receiver: Receiver
) -> None:
    await asking.submit(language="xx", callback_url=receiver.url)
    await receiver.got(1)
    remote.plan(Fault("stuck_job"))
    await asking.cancel(await asking.submit(callback_url=receiver.url))
    failed, cancelled = await receiver.got(2)
    assert failed["error"] == "there is no voice for the language 'xx'"
    assert (cancelled["status"], cancelled["error"]) == ("failed", "cancelled")


async def test_a_call_that_fails_is_tried_again(
    remote: TtsRemote, asking: Asking, receiver: Receiver
) -> None:
    receiver.statuses = [500]
    await asking.submit(callback_url=receiver.url)
    first, second = await receiver.got(2)
    assert first == second
    assert remote.seen.callbacks["failed"] == 1


async def test_a_call_that_is_due_is_made_after_a_restart(
    remote: TtsRemote, asking: Asking, receiver: Receiver
) -> None:
    receiver.statuses = [503]
    job_id = await asking.submit(callback_url=receiver.url)
    await receiver.got(1)
    await remote.go_away()
    assert remote.jobs.undone() == [job_id]
    await remote.come_back()
    await receiver.got(2)
    assert remote.seen.jobs_begun == 1, "it was not spoken again"


async def test_whoever_cannot_be_called_loses_nothing_but_the_call(asking: Asking) -> None:
    job_id = await asking.submit(callback_url="http://127.0.0.1:1/nobody")
    assert (await asking.ended(job_id))["status"] == "completed"
