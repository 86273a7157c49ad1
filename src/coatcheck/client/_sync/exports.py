"""Exports of a batch's results as a zip: create, wait, download."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

from coatcheck.client._sync.exchange import Exchange
from coatcheck.client._sync.files import Files
from coatcheck.client.addresses import Addresses
from coatcheck.client.answers import read
from coatcheck.client.batch_request import given, keyed_headers
from coatcheck.client.errors import ExportFailed, UnexpectedAnswer
from coatcheck.client.models import BatchExport
from coatcheck.client.retries import BACKOFF, Deadline
from coatcheck.encoding import encode

LOOKS_APART_MAX: Final = 4
"""How often the interval between two polls of an export is doubled, at most."""


class Exports:
    """The steps of an export."""

    def __init__(self, exchange: Exchange, addresses: Addresses) -> None:
        self._exchange = exchange
        self._addresses = addresses
        self._files = Files(exchange)

    def create(self, batch_id: str, run: str | None) -> BatchExport:
        response = self._exchange.send(
            "POST",
            f"{self._addresses.batch(batch_id)}/exports",
            headers=keyed_headers(None),
            content=encode(given(run=run)),
        )
        return read(response, BatchExport)

    def get(self, batch_id: str, export_id: str) -> BatchExport:
        url = self._addresses.below(batch_id, "exports", export_id)
        return read(self._exchange.send("GET", url), BatchExport)

    def wait(self, batch_id: str, export: BatchExport, deadline: Deadline) -> BatchExport:
        """Wait until the export is ready. Raises ExportFailed."""
        looks = 0
        while export.url is None:
            if export.terminal:
                raise _failure(export)
            if deadline.passed:
                message = f"The export was not ready within {deadline.seconds:g} s."
                raise ExportFailed(export, "wait_timeout", message)
            delay = BACKOFF.delay(min(looks, LOOKS_APART_MAX), random.random())
            self._exchange.pause(min(delay, deadline.remaining()))
            looks += 1
            export = self.get(batch_id, export.id)
        return export

    def download(self, export: BatchExport, path: Path) -> Path:
        """Download an export to a file, which appears when it is complete and checked."""
        if export.url is None or export.bytes is None or export.sha256 is None:
            raise UnexpectedAnswer("the answer has an export without a URL or a size")
        url = self._addresses.signed(export.url)
        return self._files.download(url, path, export.bytes, export.sha256)


def _failure(export: BatchExport) -> ExportFailed:
    if export.error is None:
        return ExportFailed(export, "export_failed", "The server gave no reason.")
    return ExportFailed(export, export.error.code, export.error.message)
