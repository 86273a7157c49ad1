"""Says why a job waits, for those who ask: what holds it up, since when, and what happens next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coatcheck.core import Engine
from coatcheck.domain.job import JobView
from coatcheck.domain.states import State
from coatcheck.products.llm import schemas as words
from coatcheck.products.llm.queries import TargetState
from coatcheck.products.llm.repository import LlmQueries

UNREACHABLE_CODE: Final = "target_unreachable"


async def why_it_waits(engine: Engine, view: JobView) -> words.Waiting:
    """For a job that nobody holds."""
    if view.state is State.RETRYING and view.error_code != UNREACHABLE_CODE:
        return words.Waiting(
            "backoff",
            f"The last attempt failed: {view.error_message or view.error_code}",
            view.updated_at,
            view.run_at,
        )
    away = await _away(engine)
    all_away = len(away) == len(engine.settings.llm_targets) > 0
    if view.state is State.RETRYING or all_away:
        what = "No target can be reached" if all_away else "Its target could not be reached"
        return _unreachable(view, away, what)
    since = max(view.created_at, view.run_at)
    if await engine.stall_reason(view) == "no_worker":
        return words.Waiting(
            "no_worker", "No worker that calls language models is running.", since, None
        )
    detail = "It stands in the queue, behind others or until a target has a place free."
    if away:
        known = len(engine.settings.llm_targets)
        detail += f" Of {known} targets, {len(away)} cannot be reached."
    return words.Waiting("queue", detail, since, None)


async def _away(engine: Engine) -> list[TargetState]:
    """The targets that cannot be reached, of those that are set now."""
    names = {target.name for target in engine.settings.llm_targets}
    states = await engine.extension(LlmQueries).target_states()
    return [each for each in states if each.name in names and each.unreachable_since is not None]


def _unreachable(view: JobView, away: Sequence[TargetState], what: str) -> words.Waiting:
    """What is tried next is the job itself, or a target, whichever comes first."""
    since = [each.unreachable_since for each in away if each.unreachable_since is not None]
    due = [each.next_try_at for each in away if each.next_try_at is not None]
    if view.state is State.RETRYING:
        due.append(view.run_at)
    error = next((each.last_error for each in away if each.last_error), view.error_message)
    return words.Waiting(
        UNREACHABLE_CODE,
        f"{what}; no attempt is spent. {error or ''}".rstrip(),
        min(since, default=view.updated_at),
        min(due, default=None),
    )
