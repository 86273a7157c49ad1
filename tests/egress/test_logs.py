"""Nothing of a URL that may be secret is logged by a call, at any level."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from coatcheck.domain.errors import UrlForbidden
from coatcheck.egress import Guard
from coatcheck.settings.egress_allow import parse_allow
from coatcheck.telemetry.logs import configure_logging
from tests.egress.upstream_server import upstream_server


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


@pytest.mark.parametrize("level", ["info", "debug"])
async def test_a_call_logs_neither_its_query_nor_its_headers_nor_its_path(level: str) -> None:
    written = io.StringIO()
    configure_logging(level, "json", written)
    async with upstream_server() as allowed:
        async with Guard(parse_allow("127.0.0.1")).client() as client:
            await client.get(
                allowed.url("/canary-path?q=canary-query&token=canary-token"),
                headers={"Authorization": "Bearer canary-header"},
            )
            with pytest.raises(UrlForbidden):
                await client.get("https://10.0.0.1/canary-path?q=canary-query")
        logging.getLogger("coatcheck.tests").warning("the log works")

    assert "the log works" in written.getvalue()
    assert "canary" not in written.getvalue()
    assert len(allowed.requests) == 1
