from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from examples.tts_remote import TtsRemote
from tests.tts_remote.asking import Asking


@pytest.fixture
async def remote(tmp_path: Path) -> AsyncIterator[TtsRemote]:
    async with TtsRemote(tmp_path / "jobs") as running:
        yield running


@pytest.fixture
async def asking(remote: TtsRemote) -> AsyncIterator[Asking]:
    async with Asking(remote.url) as client:
        yield client
