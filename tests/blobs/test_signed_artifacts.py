"""A file that a job made, fetched by somebody who has its URL and nothing else."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urljoin

import httpx2

from coatcheck import Job, Service
from tests.blobs.stores import BlobStore
from tests.deployment import Deployment

JOBS = "/api/v1/orgs/default/services/lab/jobs"

lab = Service("lab")


@lab.post("/draw")
async def draw(job: Job) -> None:
    await job.attach("naïve plan.svg", b"<svg/>", media_type="image/svg+xml")


async def test_an_artifact_is_downloaded_under_its_name_from_any_store_until_it_is_deleted(
    dsn: str, tmp_path: Path, blob_store: BlobStore
) -> None:
    async with Deployment(dsn, tmp_path, blob_url=blob_store.url) as deployment:
        await deployment.start_worker(lab)
        ticket = await deployment.engine.submit("lab.post__draw")
        await deployment.engine.wait(ticket.id)
        listed = await deployment.http.get(f"{JOBS}/{ticket.id}/artifacts")
        [item] = listed.json()["items"]
        url = urljoin(str(deployment.http.base_url), item["signed_url"])
        async with httpx2.AsyncClient(trust_env=False) as stranger:
            answer = await stranger.get(url)
            receipt = (await deployment.http.delete(item["url"])).json()["receipt"]
            gone = await stranger.get(url)
    native = blob_store.kind != "folder"
    assert item["signed_url"].startswith("http") == native, "a store that signs serves it itself"
    assert receipt["complete"]
    assert gone.status_code == 404
    assert (answer.status_code, answer.content) == (200, b"<svg/>")
    assert answer.headers["Content-Type"] == "image/svg+xml"
    assert "filename*=UTF-8''na%C3%AFve%20plan.svg" in answer.headers["Content-Disposition"]
