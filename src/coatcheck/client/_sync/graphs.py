"""The client's API for graphs: upload archives of code, get graphs."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coatcheck.client._sync.exchange import Exchange
from coatcheck.client._sync.files import Files
from coatcheck.client.addresses import Addresses, with_query
from coatcheck.client.answers import read
from coatcheck.client.batch_request import keyed_headers
from coatcheck.client.errors import JobFailed
from coatcheck.client.models import GraphEnvelope, GraphJob, GraphOperation
from coatcheck.client.request_headers import seconds
from coatcheck.client.retries import POLL_SECONDS, Polling
from coatcheck.client.task_lines import at_once

"""How long the server holds one long-poll: less than most proxies allow."""


class Graphs:
    """Graphs of code: ``client.graphs``.

    Every method accepts a job or its id.
    """

    def __init__(self, exchange: Exchange, addresses: Addresses, files: Files) -> None:
        self._exchange = exchange
        self._addresses = addresses
        self._files = files

    def generate(
        self,
        operation: GraphOperation,
        file: str | os.PathLike[str],
        *,
        idempotency_key: str | None = None,
        timeout: float | None = None,
        on_progress: Callable[[GraphJob], object] | None = None,
    ) -> Any:
        """The graph of the zip ``file``: ``submit`` and ``wait`` in one. Raises as they do."""
        job = self.submit(operation, file, idempotency_key=idempotency_key)
        return (self.wait(job, timeout, on_progress=on_progress)).result

    def submit(
        self,
        operation: GraphOperation,
        file: str | os.PathLike[str],
        *,
        idempotency_key: str | None = None,
    ) -> GraphJob:
        """Submit a zip of code for ``dependency``, ``call``, ``domain``, ``parse`` or
        ``supermodel``. When this returns, the job is durable.

        The file is sent piece by piece. Without an ``idempotency_key`` a new one is used, so that a
        retry cannot create a second job; pass your own if your program may end before it gets the
        answer.
        """
        boundary = secrets.token_hex(16)
        headers = keyed_headers(
            idempotency_key, {"Content-Type": f"multipart/form-data; boundary={boundary}"}
        )
        path = Path(file)
        opened = at_once(path.open, "rb")
        try:
            response = self._files.send(
                "POST",
                self._addresses.graphs(operation),
                headers,
                opened,
                os.fstat(opened.fileno()).st_size,
                before=_part_head(boundary),
                after=f"\r\n--{boundary}--\r\n".encode(),
            )
        finally:
            at_once(opened.close)
        return read(response, GraphEnvelope).job()

    def get(self, job: GraphJob | str, *, wait: float | None = None) -> GraphJob:
        """The current state of the job, or its state after at most ``wait`` seconds (up to 60)."""
        query = {"wait": None if wait is None else seconds(wait)}
        url = self._addresses.graph_job(job if isinstance(job, str) else job.id)
        response = self._exchange.send("GET", with_query(url, query), held=wait or 0.0)
        return read(response, GraphEnvelope).job()

    def wait(
        self,
        job: GraphJob | str,
        timeout: float | None = None,
        *,
        on_progress: Callable[[GraphJob], object] | None = None,
        raise_on_failure: bool = True,
    ) -> GraphJob:
        """Wait until the job has ended, and return it with its graph.

        ``on_progress`` is called with the job about every second meanwhile. Raises WaitTimeout
        after ``timeout`` seconds (None: never), and JobFailed if it failed, unless
        ``raise_on_failure`` is false.
        """
        polling = Polling(timeout, hold=POLL_SECONDS if on_progress is None else 1.0)
        while True:
            job = self.get(job, wait=polling.next_hold())
            if on_progress is not None:
                on_progress(job)
            if job.terminal:
                break
            if pause := polling.pause(job):
                self._exchange.pause(pause)
        if raise_on_failure and job.status != "completed":
            raise JobFailed(job)
        return job


def _part_head(boundary: str) -> bytes:
    return (
        f"--{boundary}\r\n"
        'Content-Disposition: form-data; name="file"; filename="archive.zip"\r\n'
        "Content-Type: application/zip\r\n\r\n"
    ).encode()
