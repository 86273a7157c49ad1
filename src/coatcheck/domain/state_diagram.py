"""Generates the states reference page from the table of transitions.

``python -m coatcheck.domain.state_diagram > docs/reference/states.md`` regenerates it.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import Final, assert_never

from coatcheck.domain.states import (
    HELD,
    INITIAL,
    TERMINAL,
    TRANSITIONS,
    WAITING,
    State,
    TransitionEvent,
)


def markdown() -> str:
    """The states reference page."""
    return "\n".join([_PAGE_HEAD, _diagram(), _STATES_HEAD, _states(), _EVENTS_HEAD, _events(), ""])


def _diagram() -> str:
    lines = ["```mermaid", "stateDiagram-v2"]
    lines += [f"    [*] --> {state}" for state in State if state in INITIAL]
    events: defaultdict[tuple[State, State], list[TransitionEvent]] = defaultdict(list)
    for source, event, target in _steps():
        events[source, target].append(event)
    lines += [
        f"    {source} --> {target}: {', '.join(named)}"
        for (source, target), named in events.items()
    ]
    lines += [f"    {state} --> [*]" for state in State if state in TERMINAL]
    return "\n".join([*lines, "```", ""])


def _states() -> str:
    lines = ["| state | a job in it | kind |", "| --- | --- | --- |"]
    lines += [f"| `{state}` | {_meaning(state)} | {_kind(state)} |" for state in State]
    return "\n".join([*lines, ""])


def _events() -> str:
    lines = ["| event | caused by | meaning | from | to |", "| --- | --- | --- | --- | --- |"]
    for event in TransitionEvent:
        who, what = _story(event)
        targets: defaultdict[State, list[State]] = defaultdict(list)
        for source, stepped, target in _steps():
            if stepped is event:
                targets[target].append(source)
        for target, sources in targets.items():
            named = ", ".join(f"`{source}`" for source in sources)
            lines.append(f"| `{event}` | {who} | {what} | {named} | `{target}` |")
    return "\n".join(lines)


def _steps() -> list[tuple[State, TransitionEvent, State]]:
    """The table in the order in which states and events are declared."""
    return [
        (state, event, TRANSITIONS[state, event])
        for state in State
        for event in TransitionEvent
        if (state, event) in TRANSITIONS
    ]


def _kind(state: State) -> str:
    if state in TERMINAL:
        return "terminal"
    if state in HELD:
        return "held by a worker"
    assert state in WAITING
    return "waiting"


def _meaning(state: State) -> str:
    match state:
        case State.STAGED:
            return "is due later"
        case State.QUEUED:
            return "waits for a worker"
        case State.DISPATCHING:
            return "was claimed by a worker; its handler has just begun or is about to"
        case State.PROCESSING:
            return "is running"
        case State.FINALIZING:
            return "was finished by a remote; its result is being stored"
        case State.RETRYING:
            return "failed, or lost its worker more than once, and will run again later"
        case State.CANCEL_REQUESTED:
            return "is running, and its worker was asked to stop it"
        case State.COMPLETED:
            return "has a result"
        case State.FAILED:
            return "has an error, and will not be retried"
        case State.CANCELLED:
            return "was cancelled"
        case _:
            assert_never(state)


def _story(event: TransitionEvent) -> tuple[str, str]:
    """What causes an event, and what it means."""
    match event:
        case TransitionEvent.DUE:
            return "the stager", "it became due"
        case TransitionEvent.CLAIM:
            return "a worker", "claimed it"
        case TransitionEvent.START:
            return "its worker", "the handler has been running for a while"
        case TransitionEvent.FINALIZE:
            return "its worker", "the remote work is done; its result is being stored"
        case TransitionEvent.COMPLETE:
            return "its worker", "the handler returned"
        case TransitionEvent.FAIL:
            return (
                "its worker, the expirer or the rescuer",
                "failed for good, or no attempt is left",
            )
        case TransitionEvent.RETRY:
            return "its worker or the expirer", "failed, or ran too long, and an attempt is left"
        case TransitionEvent.UNREACHABLE:
            return "its worker", "what it needs is unreachable; spends no attempt"
        case TransitionEvent.POSTPONE:
            return "its worker", "its call broke off, which is counted separately; no attempt"
        case TransitionEvent.RELEASE:
            return "its worker", "the worker is stopping; spends no attempt"
        case TransitionEvent.CRASH:
            return "the rescuer", "its worker died or went silent, for the first time"
        case TransitionEvent.CRASH_AGAIN:
            return (
                "the rescuer",
                "its worker died or went silent, and not for the first time; due after a delay",
            )
        case TransitionEvent.CANCEL:
            return "the caller", "requested cancellation"
        case TransitionEvent.ACKNOWLEDGE_CANCEL:
            return "its worker", "the handler stopped as requested"
        case TransitionEvent.EXPIRE:
            return "the expirer", "it did not start before its deadline"
        case _:
            assert_never(event)


_PAGE_HEAD: Final = """\
# States of a job

<!-- Generated by `python -m coatcheck.domain.state_diagram` from `domain/states.py`. -->

Every job begins in `staged` or `queued` and ends in one of three terminal states, which it never
leaves. An event that the table below does not list for a state changes nothing.
"""

_STATES_HEAD: Final = """\
## States
"""

_EVENTS_HEAD: Final = """\
## Events

`retry` and `crash_again` lead to `failed`, as `fail` does, once no attempt is left.
"""


if __name__ == "__main__":
    sys.stdout.write(markdown())
