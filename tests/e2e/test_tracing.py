"""One trace from a submission to its webhook, recorded by two processes and sent to a collector."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx2

from coatcheck.core.queries import tenants
from coatcheck.db.connection import Connection
from coatcheck.domain.tenants import ALL_SCOPES, OrgLimits, mint
from examples.trace.__main__ import traced
from examples.trace.collector import TraceCollector
from tests.e2e.conftest import COMMAND, environment, free_port
from tests.e2e.programs import WORKER_IS_READY
from tests.waiting import LIMIT_SECONDS, eventually

PEPPER = "a pepper that is only ever used in tests"


async def test_submission_run_and_webhook_are_one_trace_across_processes(
    dsn: str, tmp_path: Path
) -> None:
    key = await make_key(dsn)
    url = f"http://127.0.0.1:{free_port()}"
    with TraceCollector(port=0) as collector, ExitStack() as processes:
        variables = {
            "COATCHECK_DATABASE_URL": dsn,
            "COATCHECK_BLOB_URL": (tmp_path / "blobs").as_uri(),
            "COATCHECK_KEY_PEPPER": PEPPER,
            "COATCHECK_LOG_FORMAT": "json",
            "COATCHECK_WEBHOOK_LOOPBACK": "on",
            "COATCHECK_GRAPHS_CONCURRENCY": "0",
            "COATCHECK_TEMP_DIR": str(tmp_path / "temp"),
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }
        port = url.rpartition(":")[2]
        serve_log = tmp_path / "serve.log"
        worker_log = tmp_path / "worker.log"
        processes.enter_context(running("serve", "--port", port, log=serve_log, env=variables))
        processes.enter_context(
            running("worker", "tests.e2e.traced_service:demo", log=worker_log, env=variables)
        )
        eventually(
            lambda: is_serving(url) and WORKER_IS_READY in worker_log.read_text(),
            "the service can be called",
        )

        printed = await asyncio.to_thread(traced, url, key, collector)

        title, *lines = printed.splitlines()
        trace_id = title.rpartition(" ")[2]
        spans = collector.wait_for(trace_id, lambda spans: len(spans) >= 4, LIMIT_SECONDS)
    by_name = {span.name: span for span in spans}
    assert set(by_name) == {
        "POST /api/v1/orgs/{org}/services/{service}/async/{path:path}",
        "run demo.post__echo",
        "the handler's own",
        "webhook job.completed",
    }
    submit = by_name["POST /api/v1/orgs/{org}/services/{service}/async/{path:path}"]
    run, own, webhook = (
        by_name[name]
        for name in ("run demo.post__echo", "the handler's own", "webhook job.completed")
    )
    assert run.parent_id == webhook.parent_id == submit.span_id
    assert own.parent_id == run.span_id
    assert submit.service == webhook.service == "coatcheck-serve"
    assert run.service == own.service == "coatcheck-worker"
    assert run.attributes["coatcheck.outcome"] == "completed"
    assert run.attributes["coatcheck.job.id"] == title.split()[1].rstrip(",")
    assert "hello" not in str(spans), "no payload is in a trace"
    assert lines[0].startswith(f"{submit.name} ")
    assert lines[1].startswith(f"  {run.name} ")
    said = [json.loads(line) for line in worker_log.read_text().splitlines()]
    (line,) = [line for line in said if line["message"] == "echoing"]
    assert line["trace_id"] == trace_id


async def make_key(dsn: str) -> str:
    key = mint()
    line = Connection(dsn, name="tests")
    await tenants.create_org(line, "default", "default", OrgLimits())
    await tenants.create_key(
        line,
        "default",
        key.key_id,
        user="dev",
        name="test",
        digest=key.digest(PEPPER.encode()),
        scopes=ALL_SCOPES,
        rate=None,
        seconds_to_live=None,
    )
    await line.close()
    return key.text


def is_serving(url: str) -> bool:
    with suppress(httpx2.HTTPError):
        return httpx2.get(f"{url}/readyz", trust_env=False).is_success
    return False


@contextmanager
def running(*arguments: str, log: Path, env: dict[str, str]) -> Iterator[None]:
    """A command in the background, told to stop at the end."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            env=environment(**env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_SECONDS) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
