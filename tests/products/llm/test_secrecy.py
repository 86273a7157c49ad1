"""Nothing of what was asked, answered or sent along is in the logs."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from coatcheck import State
from coatcheck.products.llm.repository import LlmRepository
from coatcheck.settings.targets import LlmTarget
from examples.ollama_upstream import Fault, OllamaUpstream
from tests.products.llm.chats import Chats
from tests.waiting import eventually_async

PROMPT = "canary-of-the-prompt"
SAID = "canary-of-the-target"
TOKEN = "canary-of-the-token"


async def test_no_prompt_answer_token_or_error_text_is_logged(
    dsn: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "coatcheck")
    async with (
        OllamaUpstream(token=TOKEN, tokens_per_second=0) as target,
        Chats(dsn, tmp_path, [LlmTarget("box", target.url, TOKEN)]) as chats,
    ):
        target.plan(Fault("error", path="/api/tags", message=SAID))
        await chats.work()
        answer = await chats.answer_of(await chats.submit(PROMPT))
        words = [word for word in answer["message"]["content"].split() if len(word) > 4]
        assert words
        for fault in (
            Fault("error", message=SAID),
            Fault("error", status=404, message=SAID),
            Fault("error_line", after_tokens=1, message=SAID),
            Fault("garbage", after_tokens=1, message=SAID),
            Fault("long_line", size_bytes=20_000_000),
        ):
            fault.path = "/api/chat"
            target.plan(fault)
            view = await chats.end_of(await chats.submit(PROMPT, retries=0))
            assert view.state is State.FAILED
        target.plan(Fault("cut", path="/api/chat", after_tokens=1))
        await chats.answer_of(await chats.submit(PROMPT))
        await target.go_away()
        ticket = await chats.submit(PROMPT)

        async def waits() -> bool:
            states = await chats.engine.extension(LlmRepository).target_states()
            return any(state.unreachable_since is not None for state in states)

        await eventually_async(waits, "the target was found away")
        await chats.engine.cancel(ticket.id)
        await chats.end_of(ticket)
    logged = "\n".join(record.getMessage() + str(record.__dict__) for record in caplog.records)
    assert "a job failed with no attempt left" in logged
    assert "cannot read the models of a target" in logged
    assert "a target is unreachable" in logged
    for secret in (PROMPT, SAID, TOKEN, *words):
        assert secret not in logged
