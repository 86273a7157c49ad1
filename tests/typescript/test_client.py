"""The TypeScript client: against scripts, against a whole server, in its guides, in a browser."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from playwright.async_api import Route

from tests.browser.chromium import Complaints, find_chromium, open_chromium
from tests.browser.windows import Watch
from tests.deployment import bearer
from tests.products.graphs.archives import zipped
from tests.typescript.conftest import CODE, Live
from tests.typescript.documentation import make_project, outputs, programs
from tests.typescript.package import BUILD, DIST, assert_is_built, run_tests

pytestmark = pytest.mark.asyncio(loop_scope="module")

IN_A_PAGE = """async ({ key }) => {
    const { Coatcheck, JobFailedError, NotFoundError } = await import("/page/dist/index.js");
    const client = new Coatcheck({ url: location.origin, apiKey: key });
    const told = [];
    const job = await client.submit("desk", "tell", undefined, { idempotencyKey: "Größe 1" });
    const result = await job.wait({ onProgress: (progress) => told.push(progress.note) });
    const again = await client.submit("desk", "tell", undefined, { idempotencyKey: "Größe 1" });
    const chunks = [];
    for await (const event of job.stream()) {
        const { name, data } = event;
        if (name === "chunk") chunks.push(data instanceof Uint8Array ? [...data] : data);
    }
    const failure = await client.call("desk", "fail").catch((error) => error);
    const stranger = client.job("desk", "01JAV8M2Q0XW3N5T7R9Y1B3D5F");
    const missing = await stranger.status().catch((error) => error);
    const drawing = await client.submit("desk", "draw", undefined, { wait: 60 });
    const [, plan] = await drawing.artifacts();
    const leaving = AbortSignal.abort(new Error("seen enough"));
    const left = await client.usage({ signal: leaving }).catch((error) => error.message);
    const tasks = [{ text: "a" }, { text: "b c" }];
    const batch = await client.batches.create({ service: "desk", endpoint: "/count", tasks });
    const { counts } = await batch.wait();
    return {
        result, told, chunks, left,
        replayed: again.replayed && again.id === job.id,
        failure: [failure instanceof JobFailedError, failure.code],
        missing: missing instanceof NotFoundError && missing.requestId !== null,
        bytes: (await client.download(plan)).length,
        succeeded: counts.succeeded,
    };
}"""


async def test_it_passes_the_cases_that_every_client_has_to_pass() -> None:
    assert_is_built()
    await run_tests(BUILD.glob("*.test.js"), {"PATH": os.environ["PATH"]})


async def test_it_does_what_it_says_against_a_whole_server(live: Live) -> None:
    await run_tests((BUILD / "live").glob("*.test.js"), live.env)
    assert live.cutting.cuts > 1


async def test_every_program_of_its_pages_prints_what_the_page_says(
    live: Live, tmp_path: Path
) -> None:
    await make_project(tmp_path)
    (tmp_path / "code.zip").write_bytes(zipped(CODE))
    async with httpx2.AsyncClient(base_url=live.url, headers=bearer(live.key)) as http:
        answer = await http.get("/api/v1/orgs/default/webhooks/secret")
    env = live.env | {"WEBHOOK_SECRET": answer.json()["secret"]}
    expected = {program.name: program.prints for program in programs()}
    assert await outputs(tmp_path, env) == expected


async def test_it_runs_in_a_page_as_it_was_built(live: Live) -> None:
    """The page is of the server's own origin: what is below ``/page`` comes from here instead."""
    executable = find_chromium()
    assert executable is not None, "there is no browser: run `make browser`"
    complaints = Complaints()
    for status in ("404", "502"):  # a job that is not there, and one that fails
        complaints.expect(f"status of {status}")
    async with open_chromium(executable) as browser:
        page = await browser.new_page()
        Watch(page, complaints)
        await page.route("**/page/**", _serve)
        await page.goto(f"{live.url}/page/index.html")
        seen: dict[str, Any] = await page.evaluate(IN_A_PAGE, {"key": live.key})
    assert seen == {
        "result": 6,
        "told": ["half way"],
        "chunks": ["one", {"two": [2]}, [0, 255], "four", "five", 6],
        "left": "seen enough",
        "replayed": True,
        "failure": [True, "no_mailbox"],
        "missing": True,
        "bytes": 600_000,
        "succeeded": 2,
    }
    assert complaints.unexpected() == []


async def _serve(route: Route) -> None:
    _, _, name = urlsplit(route.request.url).path.partition("/page/")
    if name == "index.html":
        await route.fulfill(body="<!doctype html><title>a page</title>", content_type="text/html")
    else:
        body = (DIST.parent / name).read_text()
        await route.fulfill(body=body, content_type="text/javascript")
