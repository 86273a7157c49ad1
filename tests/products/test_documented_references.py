"""Programs of the references to services, the engine and the client, and of the guide to scraping.

They are run as they stand there.
"""

from __future__ import annotations

import ast
import inspect
import io
from pathlib import Path
from typing import Any

import pytest

from coatcheck import Job, JobView, Service
from coatcheck.domain.states import State
from tests.client.test_webhook_signatures import BODY, SECRET, signed
from tests.deployment import Deployment
from tests.markdown import REPOSITORY, Page

SERVICE = Page(REPOSITORY / "docs/reference/service.md")
ENGINE = Page(REPOSITORY / "docs/reference/engine.md")
CLIENT = Page(REPOSITORY / "docs/reference/client.md")
SCRAPE = Page(REPOSITORY / "docs/how-to/scrape.md")

press = Service("press")


@press.post("/print")
async def print_page(job: Job) -> None:
    await job.attach("body", b"<html>", media_type="text/html")


async def ran(program: str, **names: Any) -> dict[str, Any]:
    """The names that a program has at its end; it may await where it stands."""
    code = compile(program, "a page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    ended = eval(code, names)
    if inspect.isawaitable(ended):
        await ended
    return names


async def test_the_service_of_its_reference_does_what_the_engines_asks_for(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (declaration,) = SERVICE.blocks("python")
    hand_in, follow = ENGINE.blocks("python")
    declared = await ran(declaration.text)
    async with Deployment(dsn, tmp_path) as deployment:
        await deployment.start_worker(declared["docs"], press)
        monkeypatch.setenv("COATCHECK_DATABASE_URL", dsn)
        monkeypatch.setenv("COATCHECK_BLOB_URL", deployment.settings.blob_url or "")
        collected = await ran(hand_in.text)
        assert collected["job"].result == b'{"characters":3}'

        ticket = await deployment.engine.submit("docs.post__analyze", {"content": "again"})
        shown: list[JobView] = []
        watched = await ran(
            follow.text, engine=deployment.engine, job_id=ticket.id, show=shown.append
        )

        (fetch,) = SCRAPE.blocks("python")
        made = await deployment.engine.submit("press.post__print")
        await deployment.engine.wait(made.id)
        with io.BytesIO() as file:
            await ran(fetch.text, engine=deployment.engine, job_id=made.id, file=file)
            assert file.getvalue() == b"<html>"
    assert watched["job"].state is State.COMPLETED
    assert not any(job.terminal for job in shown)


async def test_the_receiver_of_the_clients_reference_takes_what_is_signed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (program,) = CLIENT.blocks("python")
    receive = (await ran(program.text))["receive"]
    assert receive(BODY, signed(), SECRET) == 204
    assert capsys.readouterr().out == "msg_1 job.completed {'id': '01J'}\n"
    assert receive(BODY + b" ", signed(), SECRET) == 400
