from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from examples.ollama_upstream import OllamaUpstream
from tests.contract.chat_estate import CHAT_MODEL, EMBED_MODEL, PICTURE_MODEL
from tests.contract.estate import Estate
from tests.egress.upstream_server import upstream_server
from tests.surfaces.house import House

STRIPE_SECRET = "whsec_that_is_only_ever_used_in_tests"


@pytest.fixture
async def models() -> AsyncIterator[OllamaUpstream]:
    served = [CHAT_MODEL, EMBED_MODEL, PICTURE_MODEL]
    async with OllamaUpstream(served, tokens_per_second=0) as upstream:
        yield upstream


@pytest.fixture
async def house(dsn: str, tmp_path: Path, models: OllamaUpstream) -> AsyncIterator[House]:
    """A deployment that serves every route that there is: with billing on, Stripe's as well."""
    async with House(
        dsn,
        tmp_path,
        stripe_webhook_secret=STRIPE_SECRET,
        llm_url=models.url,
        speech_remote_url=models.url,  # which refuses to speak
    ) as opened:
        yield opened


@pytest.fixture
async def estate(house: House) -> AsyncIterator[Estate]:
    async with upstream_server() as upstream:
        yield await Estate.built(house, upstream.url())
