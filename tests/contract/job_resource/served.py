"""One deployment for the whole suite: a server on a socket, and what the products call.

Jobs wait until a test opens workers, so that "waiting" is a state that lasts.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

from coatcheck.db.database import Database
from coatcheck.hosting import open_workers, webhook_payloads
from coatcheck.maintenance.webhooks import WebhookDeliverer
from coatcheck.product import Products
from coatcheck.service import Service
from coatcheck.settings.targets import LlmTarget
from examples.ollama_upstream import Fault, OllamaUpstream
from examples.tts_remote import TtsRemote
from tests.contract.job_resource.document import Document
from tests.deployment import Deployment
from tests.egress.upstream_server import UpstreamServer, upstream_server
from tests.products.graphs.model import serving_a_model


@dataclass(frozen=True)
class Served:
    """What the tests of the suite share."""

    deployment: Deployment
    http: httpx2.AsyncClient
    """Presents no key of its own."""
    document: Document
    remote: TtsRemote
    """The remote that speaks."""
    receiver: UpstreamServer
    """Of webhooks."""

    @property
    def held(self) -> int:
        """How many answers the server holds open."""
        return self.deployment.context.open_responses.count

    @asynccontextmanager
    async def working(self, product: str, services: Sequence[Service]) -> AsyncIterator[None]:
        """The workers that a worker process has for this product, and for these services."""
        products = Products(
            tuple(each for each in self.deployment.products if each.name == product)
        )
        settings = self.deployment.settings
        async with (
            Database.of_worker(settings.database_url) as database,
            open_workers(settings, products, services, database) as workers,
        ):
            running = [asyncio.create_task(worker.run()) for worker in workers]
            try:
                for worker in workers:
                    await worker.ready.wait()
                yield
            finally:
                for worker in workers:
                    worker.stop()
                await asyncio.gather(*running)

    async def new_org(self) -> str:
        org = f"org-{secrets.token_hex(4)}"
        await self.deployment.create_org(org)
        return org


@asynccontextmanager
async def serve(dsn: str, folder: Path, *services: Service) -> AsyncIterator[Served]:
    """The deployment; these services are known, and nobody works for them."""
    async with AsyncExitStack() as closing:
        models = await closing.enter_async_context(
            OllamaUpstream(["llama3.2", "endless"], tokens_per_second=0, max_loaded=2)
        )
        models.plan(Fault("hang", model="endless:latest", times=None))
        remote = await closing.enter_async_context(TtsRemote(folder / "remote"))
        namer = closing.enter_context(serving_a_model())
        namer.holding = True
        closing.callback(namer.release.set)
        receiver = await closing.enter_async_context(upstream_server())
        deployment = await closing.enter_async_context(
            Deployment(
                dsn,
                folder,
                llm_targets=(LlmTarget("here", models.url, "", 4),),
                speech_remote_url=remote.url,
                graphs_llm_url=namer.url,
                graphs_llm_model="silent",
                poll_seconds_min=0.1,
            )
        )
        await deployment.stop_worker(await deployment.start_worker(*services))
        deployment.start_maintenance()
        deliverer = WebhookDeliverer(
            deployment.settings,
            webhook_payloads(deployment.products, deployment.context).body,
            deployment.engine.database,
        )
        await deliverer.begin()
        closing.push_async_callback(deliverer.stop)
        document = (await deployment.http.get("/openapi.json")).json()
        http = await closing.enter_async_context(
            httpx2.AsyncClient(base_url=deployment.http.base_url, trust_env=False, timeout=90)
        )
        yield Served(deployment, http, Document(document), remote, receiver)
