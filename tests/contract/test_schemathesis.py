"""Schemathesis reads the OpenAPI document, and tries whatever follows from it on a real server."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from string import Template

import pytest

from coatcheck.http import parameters
from tests.budget import seed, times
from tests.contract.tenant_resources import OWN, TenantResources, webhook_endpoint
from tests.deployment import bearer

CONFIGURATION = Path(__file__).with_name("schemathesis.toml")
SECONDS_MAX = 900 * times()  # only a run that hangs takes so long
WAIT_SECONDS = 2.0
GENERATED = re.compile(r"(\d+) generated")


@pytest.fixture(autouse=True)
def nobody_waits_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for a batch that stays open is answered when the time is up."""
    monkeypatch.setattr(parameters, "WAIT_SECONDS_MAX", WAIT_SECONDS)


async def test_what_fits_the_document_is_accepted_and_what_does_not_is_refused(
    resources: TenantResources, tmp_path: Path
) -> None:
    key = resources.deployment.key
    await resources.register("default", "spare", key)
    await run(
        resources,
        tmp_path,
        # Every bound of every parameter of every route is thousands of requests: the lane's.
        *("--phases", "fuzzing" if seed() is None else "coverage,fuzzing"),
        *("--max-examples", str(4 * times())),
        *("--generation-allow-x00", "false"),  # fits any document, and is refused everywhere
        *("--header", f"Authorization: Bearer {key}"),
    )
    still_valid = await resources.deployment.http.get(
        "/api/v1/orgs/default/usage", headers=bearer(key)
    )
    assert still_valid.status_code == 200, "the run has revoked its own key"


async def test_whatever_follows_on_an_answer_is_answered_as_documented(
    resources: TenantResources, tmp_path: Path
) -> None:
    await run(
        resources,
        tmp_path,
        *("--phases", "stateful"),
        *("--max-examples", str(10 * times())),
        *("--exclude-checks", "positive_data_acceptance"),
        *("--header", f"Authorization: Bearer {resources.deployment.key}"),
    )


async def run(resources: TenantResources, folder: Path, *options: str) -> None:
    """Run Schemathesis on the resources's server. Fails with its report if it finds anything."""
    # Whoever waits for a batch, for a chat, or for a text, is answered once it has ended.
    await resources.deployment.start_batches_worker()
    await resources.deployment.start_llm_worker()
    await resources.deployment.start_remote_worker()
    resources.deployment.start_maintenance()
    configuration = folder / "schemathesis.toml"
    configuration.write_text(
        Template(CONFIGURATION.read_text()).substitute(
            deterministic=str(seed() is None).lower(),
            job=resources.ended_job.own,
            graph_job=resources.ended_graph_job.own,
            chat=resources.ended_chat.own,
            speech_task=resources.ended_task.own,
            generation=resources.generation.own,
            voice=resources.voice.own,
            key_id=resources.key_id.own,
            webhook_endpoint=await webhook_endpoint(
                resources.deployment, OWN, resources.upstream_url
            ),
            delivery=resources.delivery.own,
            blob_token=resources.blob_token.own,
            upload_token=resources.upload_token.own,
            batch=resources.batches[OWN].batch,
            open_batch=resources.batches[OWN].open_batch,
            stuck_batch=resources.batches[OWN].stuck_batch,
            task=resources.batches[OWN].task,
            export=resources.batches[OWN].export,
            dead_letter=resources.batches[OWN].dead_letter,
        )
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(configuration)),
        *("run", "--no-color", *options, *(() if seed() is None else ("--seed", str(seed())))),
        f"{resources.deployment.http.base_url}/openapi.json",
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(SECONDS_MAX):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        raise
    report = output.decode()
    assert process.returncode == 0, report
    generated = GENERATED.search(report)
    assert generated is not None, report
    print(f"{generated[1]} requests")
