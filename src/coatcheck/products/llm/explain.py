"""Explains why a chat waits: targets unreachable or full, or its model is being loaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coatcheck.core import Engine
from coatcheck.core.explain import JobExplainer, clock, for_duration
from coatcheck.domain.explanation import Blocker, BlockerKind
from coatcheck.domain.job import JobView
from coatcheck.products.llm.model import CONNECTION_LOST, LLM_ENDPOINTS
from coatcheck.products.llm.repository import LlmRepository

_ENDPOINTS: Final = sorted(LLM_ENDPOINTS.values())


class ChatExplainer(JobExplainer):
    """Explains by what workers recorded of the targets that are configured."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        targets = engine.settings.llm_targets
        self._targets = frozenset(target.name for target in targets)
        self._slots = sum(target.concurrency for target in targets)

    def spends_no_attempt(self, view: JobView) -> bool:
        return view.error_code == CONNECTION_LOST

    async def unreachable(self, view: JobView) -> Sequence[Blocker]:
        states = await self._engine.extension(LlmRepository).target_states()
        away = [
            each
            for each in states
            if each.name in self._targets and each.unreachable_since is not None
        ]
        if not away or len(away) < len(self._targets):
            return ()
        since = [each.unreachable_since for each in away if each.unreachable_since is not None]
        tries = [each.next_try_at for each in away if each.next_try_at is not None]
        return [
            Blocker(
                BlockerKind.TARGET_UNREACHABLE,
                f"No target has been reached since {clock(min(since), view.read_at)}. "
                "This does not count as an attempt.",
                since=min(since),
                until=min(tries, default=None),
            )
        ]

    async def full(self, view: JobView) -> Sequence[Blocker]:
        explainer = self._engine.explainer
        held = await explainer.held_of(_ENDPOINTS)
        if not self._slots or held < self._slots:
            return ()
        return [
            Blocker(
                BlockerKind.LANE_FULL,
                "All targets are at their concurrency limit.",
                key="targets",
                limit=self._slots,
                held=held,
                holders=await explainer.holders(view.org, "endpoint", view.endpoint),
                is_shared=True,
            )
        ]

    async def starting(self, view: JobView) -> Blocker | None:
        assignment = await self._engine.extension(LlmRepository).assignment(view.org, view.uuid)
        if assignment is None or not assignment.loading or view.started_at is not None:
            return None
        return Blocker(
            BlockerKind.MODEL_LOADING,
            f"The model {view.queue_key} is being loaded{for_duration(view.dispatched_at, view)}.",
            key=view.queue_key,
            since=view.dispatched_at,
        )
