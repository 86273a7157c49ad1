"""How long chats are kept after their end."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from examples.ollama_upstream import Fault
from tests.products.llm.talking import MODEL, Talking, talking

DAY = timedelta(days=1)


def kept(job: dict[str, Any]) -> timedelta:
    ended, expires = (datetime.fromisoformat(job[name]) for name in ("finished_at", "expires_at"))
    return expires - ended


async def ended(talk: Talking) -> dict[str, Any]:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Tell me"}]}
    answer = await talk.deployment.http.post("/jobs", json=body, params={"wait": "60"})
    job: dict[str, Any] = answer.json()
    assert job["terminal"], job
    return job


async def test_an_answer_is_kept_for_a_day_and_a_failure_for_a_week(
    dsn: str, tmp_path: Path
) -> None:
    async with talking(dsn, tmp_path) as talk:
        done = await ended(talk)
        talk.upstream.plan(Fault("error", status=400, path="/api/chat", message="bad"))
        failed = await ended(talk)
    assert (done["state"], kept(done)) == ("done", DAY)
    assert (failed["state"], kept(failed)) == ("failed", 7 * DAY)


async def test_the_two_are_set_apart(dsn: str, tmp_path: Path) -> None:
    settings = {"llm_keep_seconds": 60, "keep_failed_seconds": 90}
    async with talking(dsn, tmp_path, **settings) as talk:
        done = await ended(talk)
        talk.upstream.plan(Fault("error", status=400, path="/api/chat", message="bad"))
        failed = await ended(talk)
    assert kept(done) == timedelta(seconds=60)
    assert kept(failed) == timedelta(seconds=90)
