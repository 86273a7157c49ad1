"""Nothing of a receiver's URL, nor of what it is told, is logged."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Iterator

import pytest

from coatcheck.telemetry.logs import configure_logging
from tests.egress.upstream_server import Request, UpstreamServer
from tests.webhooks.webhook_deliveries import WebhookDeliveries, in_turn, status


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    loggers = [logging.getLogger(), logging.getLogger("httpx2"), logging.getLogger("httpcore2")]
    levels = [logger.level for logger in loggers]
    handlers = loggers[0].handlers[:]
    yield
    loggers[0].handlers[:] = handlers
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
    logging.captureWarnings(capture=False)


async def broken(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.close()


@pytest.mark.parametrize("level", ["info", "debug"])
async def test_no_log_line_has_a_url_or_a_body(
    hooks: WebhookDeliveries, receiver: UpstreamServer, level: str
) -> None:
    written = io.StringIO()
    receiver.answer = in_turn(status("500 swordfish"), broken, status("410 swordfish"))
    await hooks.ended(receiver.url("/swordfish?token=swordfish"), idempotency_key="swordfish")
    configure_logging(level, "json", written)
    async with hooks.deliverer() as deliverer:
        for _ in range(3):
            await hooks.deliver_due(deliverer)
            await hooks.make_due()
    assert len(receiver.requests) == 3
    assert written.getvalue().count("a webhook was not delivered") == 3
    assert "swordfish" not in written.getvalue()
