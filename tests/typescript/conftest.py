"""A whole deployment for the TypeScript client, once for all of its tests."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from coatcheck.maintenance.webhooks import WebhookDeliverer
from coatcheck.settings.parsers import GRAPH_ENDPOINTS
from coatcheck.settings.targets import LlmTarget
from examples.documents import documents
from examples.hello import hello
from examples.ollama_upstream import OllamaUpstream
from examples.tts_remote import TtsRemote
from tests.all_products import payloads
from tests.client.cutting_proxy import CuttingProxy
from tests.databases import Databases
from tests.deployment import Deployment
from tests.products.graphs.archives import zipped
from tests.products.speech.speech_deployment import a_wav
from tests.typescript.package import assert_is_built
from tests.typescript.service import desk

CODE = {"pair.py": "def ada():\n    return grace()\n\n\ndef grace():\n    return 1\n"}


@dataclass(frozen=True)
class Live:
    """Where the server is, and what node is told of it."""

    url: str
    key: str
    env: dict[str, str]
    cutting: CuttingProxy


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Live]:
    """A server with every surface, and workers that do what the client's tests and guides ask for.

    Such a module runs on one event loop: ``pytestmark = pytest.mark.asyncio(loop_scope="module")``.
    """
    assert_is_built()
    folder = tmp_path_factory.mktemp("live")
    tuning = {"tokens_per_second": 0, "max_loaded": 8, "parallel": 8}
    async with (
        databases.fresh() as dsn,
        OllamaUpstream(**tuning) as models,
        TtsRemote(folder / "remote", bearer="the-remotes-token") as speaker,
        Deployment(
            dsn,
            folder,
            llm_targets=(LlmTarget("here", models.url, None, 8),),
            speech_remote_url=speaker.url,
            speech_remote_token="the-remotes-token",
            graphs_retry_after_seconds=dict.fromkeys(GRAPH_ENDPOINTS.values(), 1),
        ) as deployment,
    ):
        await deployment.start_remote_worker(desk(), hello, documents)
        await deployment.start_batches_worker()
        await deployment.start_graphs_worker()
        await deployment.start_llm_worker()
        deployment.start_maintenance()
        deliverer = WebhookDeliverer(
            deployment.settings, payloads(deployment.context).body, deployment.engine.database
        )
        await deliverer.begin()
        (folder / "code.zip").write_bytes(zipped(CODE))
        (folder / "reference.wav").write_bytes(a_wav())
        url = str(deployment.http.base_url).rstrip("/")
        try:
            async with CuttingProxy(url) as cutting:
                env = environment(folder, url, deployment.key, cutting.url)
                yield Live(url, deployment.key, env, cutting)
        finally:
            await deliverer.stop()


def environment(folder: Path, url: str, key: str, cutting_url: str) -> dict[str, str]:
    """What the programs are told, and nothing of what this machine has set besides."""
    inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return inherited | {
        "COATCHECK_URL": url,
        "COATCHECK_API_KEY": key,
        "COATCHECK_CUTTING_URL": cutting_url,
        "COATCHECK_ARCHIVE": str(folder / "code.zip"),
        "COATCHECK_REFERENCE_WAV": str(folder / "reference.wav"),
    }
