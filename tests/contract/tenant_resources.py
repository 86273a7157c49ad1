"""Two organisations with the same kinds of possessions: whose they are is all that differs."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from coatcheck.blobs import SignedUrl, UrlSigner
from coatcheck.blobs.keys import upload_key
from coatcheck.blobs.signing import BLOBS_PATH, Grants
from coatcheck.core.queries import uploads, usage
from coatcheck.db.connection import Connection
from coatcheck.domain import ids, tenants
from coatcheck.domain.tenants import ALL_SCOPES, Scope
from coatcheck.domain.webhooks import message_id
from coatcheck.http.app import create_app
from coatcheck.http.routing import EVERY_METHOD, Route
from coatcheck.products.batches.model import export_key
from coatcheck.products.speech.model import generation_of
from tests.all_products import SURFACES
from tests.contract.batch_resources import BatchResources, open_batch, stuck_batch
from tests.contract.chat_resources import ended_chats, waiting_chat
from tests.contract.speech_resources import a_voice, ended_task, waiting_task
from tests.contract.things_service import things
from tests.deployment import Deployment, bearer
from tests.products.graphs.archives import post, zipped
from tests.waiting import eventually_async

OWN, FOREIGN, ABSENT = "default", "other", "nobody"
OWNER = "user:dev"
TOKEN_SECONDS = 3_600
ARCHIVE = zipped({"a.py": "x = 1\n"})
HOSTED = "/api/v1/orgs/{org}/workspaces/default/hosted-services/{service}"


@dataclass(frozen=True, slots=True)
class TenantResource:
    """Something of the caller's, the like of another organisation's, and what there is none of."""

    own: str
    foreign: str
    absent: str


@dataclass
class TenantResources:
    """What requests are about. The organisations' services have an upstream that answers."""

    deployment: Deployment
    upstream_url: str
    ended_job: TenantResource
    waiting_job: TenantResource
    ended_graph_job: TenantResource
    waiting_graph_job: TenantResource
    ended_chat: TenantResource
    waiting_chat: TenantResource
    ended_task: TenantResource
    waiting_task: TenantResource
    voice: TenantResource
    key_id: TenantResource
    delivery: TenantResource
    usage_report: TenantResource
    webhook_endpoint: TenantResource
    """One that is fetched from."""
    blob_token: TenantResource
    upload_token: TenantResource
    batches: Mapping[str, BatchResources]
    org: TenantResource = TenantResource(OWN, FOREIGN, ABSENT)
    service: TenantResource = TenantResource("mine", "theirs", "nothing")
    workspace: TenantResource = TenantResource("default", "private", "nowhere")
    changed: bool = False
    """Whether a call was let in that may have changed something."""

    @classmethod
    async def built(cls, deployment: Deployment, upstream_url: str) -> TenantResources:
        await deployment.create_org(FOREIGN)
        await deployment.start_worker(things)
        await deployment.start_gateway_worker()
        stranger = await deployment.create_key(FOREIGN)
        resources = cls(
            deployment,
            upstream_url,
            ended_job=TenantResource(
                await ended_job(deployment, OWN), await ended_job(deployment, FOREIGN), fresh_id()
            ),
            waiting_job=TenantResource(
                await waiting_job(deployment, OWN),
                await waiting_job(deployment, FOREIGN),
                fresh_id(),
            ),
            ended_graph_job=TenantResource(
                await ended_graph_job(deployment, deployment.key),
                await ended_graph_job(deployment, stranger),
                fresh_id(),
            ),
            waiting_graph_job=TenantResource(
                await waiting_graph_job(deployment, deployment.key),
                await waiting_graph_job(deployment, stranger),
                fresh_id(),
            ),
            ended_chat=TenantResource(
                *await ended_chats(deployment, deployment.key, stranger), fresh_id()
            ),
            waiting_chat=TenantResource(
                await waiting_chat(deployment, deployment.key),
                await waiting_chat(deployment, stranger),
                fresh_id(),
            ),
            ended_task=TenantResource(
                await ended_task(deployment, deployment.key),
                await ended_task(deployment, stranger),
                fresh_id(),
            ),
            waiting_task=TenantResource(
                await waiting_task(deployment, deployment.key),
                await waiting_task(deployment, stranger),
                fresh_id(),
            ),
            voice=TenantResource(
                await a_voice(deployment, deployment.key),
                await a_voice(deployment, stranger),
                fresh_id(),
            ),
            key_id=TenantResource(
                key_id_of(await deployment.create_key()), key_id_of(stranger), fresh_id()
            ),
            delivery=TenantResource(
                await delivery(deployment, OWN),
                await delivery(deployment, FOREIGN),
                f"msg_{fresh_id()}",
            ),
            usage_report=TenantResource(
                await usage_report(deployment, OWN),
                await usage_report(deployment, FOREIGN),
                fresh_id(),
            ),
            webhook_endpoint=TenantResource(
                await webhook_endpoint(deployment, OWN),
                await webhook_endpoint(deployment, FOREIGN),
                fresh_id(),
            ),
            blob_token=await blob_token(deployment),
            upload_token=await upload_token(deployment),
            batches={
                OWN: await BatchResources.built(deployment, OWN, deployment.key),
                FOREIGN: await BatchResources.built(deployment, FOREIGN, stranger),
                ABSENT: BatchResources.absent(fresh_id()),
            },
        )
        await resources.register(OWN, "mine", deployment.key)
        await resources.register(FOREIGN, "theirs", stranger)
        return resources

    def of_batches(self, kind: str) -> TenantResource:
        """One of the kinds of things that an organisation has of batches."""
        return TenantResource(*(getattr(self.batches[org], kind) for org in (OWN, FOREIGN, ABSENT)))

    @property
    def generation(self) -> TenantResource:
        """What the task that has ended was to say."""
        task = self.ended_task
        return TenantResource(*map(generation_id, (task.own, task.foreign, task.absent)))

    @property
    def definition(self) -> dict[str, Any]:
        """Of a service that takes every method on one path."""
        target = {"type": "http", "url": self.upstream_url}
        endpoints = [
            {"method": method, "path": "/thing", "target": target} for method in EVERY_METHOD
        ]
        return {"versions": {"1": {"endpoints": endpoints}}}

    async def register(self, org: str, service: str, key: str) -> None:
        path = HOSTED.format(org=org, service=service)
        answer = await self.deployment.http.put(path, json=self.definition, headers=bearer(key))
        assert answer.status_code == 200, answer.text

    async def restore(self) -> None:
        """Put right what calls that were let in have changed."""
        if not self.changed:
            return
        await self.register(OWN, self.service.own, self.deployment.key)
        for name in (self.service.foreign, self.service.absent):
            gone = await self.deployment.http.delete(HOSTED.format(org=OWN, service=name))
            assert gone.status_code in (204, 404)
        self.waiting_job = replace(self.waiting_job, own=await waiting_job(self.deployment, OWN))
        for endpoint in await self.deployment.engine.webhooks.list_endpoints(OWN):
            await self.deployment.engine.webhooks.delete_endpoint(OWN, endpoint.id)
        self.webhook_endpoint = replace(
            self.webhook_endpoint, own=await webhook_endpoint(self.deployment, OWN)
        )
        graph_job = await waiting_graph_job(self.deployment, self.deployment.key)
        self.waiting_graph_job = replace(self.waiting_graph_job, own=graph_job)
        chat = await waiting_chat(self.deployment, self.deployment.key)
        self.waiting_chat = replace(self.waiting_chat, own=chat)
        spoken = await waiting_task(self.deployment, self.deployment.key)
        self.waiting_task = replace(self.waiting_task, own=spoken)
        self.voice = replace(self.voice, own=await a_voice(self.deployment, self.deployment.key))
        stuck, letter = await stuck_batch(self.deployment, OWN, self.deployment.key)
        own = replace(
            self.batches[OWN],
            open_batch=await open_batch(self.deployment, self.deployment.key),
            stuck_batch=stuck,
            dead_letter=letter,
        )
        self.batches = {**self.batches, OWN: own}
        self.changed = False

    def routes(self) -> list[tuple[Route, str]]:
        """Every operation that is served, with each of its methods."""
        app = create_app(self.deployment.context, SURFACES)
        return [(route, method) for route in app.routes for method in route.methods]

    async def key_without(self, scope: Scope) -> str:
        return await self.deployment.create_key(scopes=ALL_SCOPES - {scope})

    async def revoked_key(self) -> str:
        """A key that was let in, and is not any more."""
        key = await self.deployment.create_key()
        assert await self._status(key) == 200
        await self.deployment.revoke_key(key)

        async def refused() -> bool:
            return await self._status(key) == 401

        await eventually_async(refused, "the revocation is heard")
        return key

    async def _status(self, key: str) -> int:
        answer = await self.deployment.http.get(f"/api/v1/orgs/{OWN}/usage", headers=bearer(key))
        return answer.status_code


def fresh_id() -> str:
    return ids.to_text(ids.new_id())


def generation_id(task: str) -> str:
    return ids.to_text(generation_of(ids.from_text(task)))


async def blob_token(deployment: Deployment) -> TenantResource:
    """Of a blob; of one that is there, signed by a stranger; of one that is not there."""
    key = export_key(await deployment.engine.deployment(), ids.new_id(), ids.new_id())
    await deployment.engine.blobs.put(key, b"an export")
    return TenantResource(
        await token_of(deployment.engine.signer.signed_get(key, TOKEN_SECONDS)),
        await token_of(stranger_of(deployment).signed_get(key, TOKEN_SECONDS)),
        await token_of(deployment.engine.signer.signed_get(f"{key}x", TOKEN_SECONDS)),
    )


async def upload_token(deployment: Deployment) -> TenantResource:
    """Of an upload; of the same, signed by a stranger; of one that was never made."""
    upload_id = ids.new_id()
    deployment_id = await deployment.engine.deployment()
    key, absent = upload_key(deployment_id, upload_id), upload_key(deployment_id, ids.new_id())
    await uploads.create(
        deployment.context.tenants,
        org=OWN,
        upload_id=upload_id,
        owner=OWNER,
        blob_key=key,
        life_seconds=TOKEN_SECONDS,
    )
    return TenantResource(
        await token_of(deployment.engine.signer.signed_put(key, TOKEN_SECONDS, "text/plain")),
        await token_of(stranger_of(deployment).signed_put(key, TOKEN_SECONDS, "text/plain")),
        await token_of(deployment.engine.signer.signed_put(absent, TOKEN_SECONDS, "text/plain")),
    )


def stranger_of(deployment: Deployment) -> UrlSigner:
    """Who signs for another deployment."""
    return UrlSigner(deployment.engine.blobs, Grants("the pepper of another deployment altogether"))


async def token_of(signing: Awaitable[SignedUrl]) -> str:
    return (await signing).url.removeprefix(BLOBS_PATH)


def key_id_of(key: str) -> str:
    parsed = tenants.parse(key.encode())
    assert parsed is not None
    return parsed.key_id


async def ended_job(deployment: Deployment, org: str) -> str:
    ticket = await deployment.engine.submit("things.post__talk", {}, org=org, owner=OWNER)

    async def ended() -> bool:
        return (await deployment.engine.get(ticket.id, org=org)).terminal

    await eventually_async(ended, "the job has ended")
    return ticket.id


async def waiting_job(deployment: Deployment, org: str) -> str:
    """A job that no worker takes."""
    ticket = await deployment.engine.submit(
        "things.post__thing", {}, org=org, owner=OWNER, delay=3_600
    )
    return ticket.id


async def delivery(deployment: Deployment, org: str) -> str:
    """The ``webhook-id`` of what nobody is told: there is no deliverer."""
    ticket = await deployment.engine.submit(
        "things.post__thing", {}, org=org, delay=3_600, webhook_url="https://example.com/"
    )
    await deployment.engine.cancel(ticket.id, org=org)
    (told,) = await deployment.engine.webhooks.deliveries(org, job=ticket.uuid, limit=2)
    return message_id(told.id)


async def usage_report(deployment: Deployment, org: str) -> str:
    """The id of a report of what it used yesterday."""
    line = Connection(deployment.settings.database_url, name="usage report")
    try:
        await line.fetch(
            "INSERT INTO usage VALUES ($1, (now() AT TIME ZONE 'UTC')::date - 2,"
            " 1, 0, 0, 1, 2, 3, 0.5, 'things.post__thing', '')",
            org,
        )
        await usage.make_reports(line, "day", rows_max=100, after_seconds=3_600, days_back=35)
        (made,) = await usage.list_reports(line, org)
    finally:
        await line.close()
    return ids.to_text(made.id)


async def webhook_endpoint(deployment: Deployment, org: str, url: str | None = None) -> str:
    """The id of one that is posted to, or else of one that is fetched from."""
    made = await deployment.engine.webhooks.create_endpoint(
        org, url, ["task.failed"], pulled=url is None
    )
    return made.id


async def waiting_graph_job(deployment: Deployment, key: str) -> str:
    """An archive that no worker analyses."""
    answer = await post(deployment.http, ARCHIVE, fresh_id(), **bearer(key))
    assert answer.status_code == 202, answer.text
    return str(answer.json()["jobId"])


async def ended_graph_job(deployment: Deployment, key: str) -> str:
    job = await waiting_graph_job(deployment, key)
    answer = await deployment.http.post(f"/v1/graphs/jobs/{job}/cancel", headers=bearer(key))
    assert answer.status_code == 200, answer.text
    return job
