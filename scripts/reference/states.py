"""The parts about the states of a job: the diagram, the tables, and each product's words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final

from coatcheck.domain.states import (
    HELD,
    INITIAL,
    TERMINAL,
    TRANSITIONS,
    WAITING,
    State,
    TransitionEvent,
)
from coatcheck.products.batches.model import BatchState, task_status
from coatcheck.products.gateway.schemas import STATUSES as GATEWAY_STATUSES
from coatcheck.products.graphs.schemas import STATUSES as GRAPH_STATUSES
from coatcheck.products.llm.schemas import llm_state
from coatcheck.products.speech.schemas import STATUSES as SPEECH_STATUSES
from scripts.reference.parts import code, described_names, table

WORDS: Final[Mapping[str, Callable[[State], str]]] = {
    "console": code,
    "gateway": lambda state: code(GATEWAY_STATUSES[state]),
    "batches (a task)": lambda state: code(task_status(state)),
    "llm": lambda state: " or ".join(
        dict.fromkeys(code(llm_state(state, loading=loading)) for loading in (False, True))
    ),
    "speech": lambda state: code(SPEECH_STATUSES[state]),
    "graphs": lambda state: code(GRAPH_STATUSES[state]),
}
"""Each product's words for the states of the engine."""


def words() -> str:
    return table(
        ["engine", *WORDS],
        ([code(state), *(word(state) for word in WORDS.values())] for state in State),
    )


def batch_words() -> str:
    listed = ", ".join(map(code, BatchState))
    ended = ", ".join(code(state) for state in BatchState if state.terminal)
    return f"A batch has many jobs. Its status is one of {listed}; it has ended with {ended}."


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
    meanings = described_names(State)
    return table(
        ["state", "a job in it", "kind"],
        ([code(state), meanings[state.name], _kind(state)] for state in State),
    )


def _kind(state: State) -> str:
    if state in TERMINAL:
        return "terminal"
    if state in HELD:
        return "held by a worker"
    assert state in WAITING
    return "waiting"


def _events() -> str:
    meanings = described_names(TransitionEvent)
    rows = []
    for event in TransitionEvent:
        cause, _, meaning = meanings[event.name].partition(": ")
        sources: defaultdict[State, list[State]] = defaultdict(list)
        for source, stepped, target in _steps():
            if stepped is event:
                sources[target].append(source)
        for target, begun in sources.items():
            rows.append([code(event), cause, meaning, ", ".join(map(code, begun)), code(target)])
    return table(["event", "caused by", "meaning", "from", "to"], rows)


def _steps() -> list[tuple[State, TransitionEvent, State]]:
    """The table in the order in which states and events are declared."""
    return [
        (state, event, TRANSITIONS[state, event])
        for state in State
        for event in TransitionEvent
        if (state, event) in TRANSITIONS
    ]


PARTS = {
    "the diagram": _diagram,
    "the states": _states,
    "the words": words,
    "the words of batches": batch_words,
    "the events": _events,
}
