"""The report of a run, for people (Markdown, a picture, a summary) and for programs (JSON)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from chaos.checker.finding import Verdict

JSON_NAME: Final = "report.json"
TEXT_NAME: Final = "report.md"
PICTURE_NAME: Final = "timeline.png"

_MUST_BE_NOUGHT: Final = ("lost", "unexpected", "effective duplicates", "canary hits", "not_ended")
_SECTIONS: Final = (
    ("Faults that struck", lambda name: name.startswith("fault ")),
    ("Calls", lambda name: name.startswith(("calls ", "acknowledged "))),
    (
        "Jobs",
        lambda name: name
        in ("jobs", "tasks", "completed", "failed", "cancelled", "not_ended", "transitions"),
    ),
    (
        "Attempts that did not complete",
        lambda name: name
        in ("rescues", "interruptions", "failures", "stale finishes rejected"),
    ),
    ("Webhooks", lambda name: name.startswith("webhooks ")),
    ("Recovery", lambda name: name.endswith("(s)")),
)  # fmt: skip


def write(
    folder: Path,
    verdict: Verdict,
    history: Sequence[Mapping[str, Any]],
    *,
    seed: int,
    command: str,
    minutes: float,
) -> Path:
    """Write the report into ``folder``, with the chart if matplotlib is installed. Returns the
    path of the text."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "seed": seed,
        "command": command,
        "minutes": minutes,
        "passed": verdict.passed,
        **asdict(verdict),
    }
    (folder / JSON_NAME).write_text(json.dumps(document, indent=1, default=str) + "\n")
    drawn = _draw(folder / PICTURE_NAME, verdict, history, f"seed {seed}, {minutes:g} min")
    path = folder / TEXT_NAME
    path.write_text("\n".join(_text(verdict, seed, command, minutes, drawn)) + "\n")
    return path


def summary(verdict: Verdict, *, seed: int, minutes: float) -> str:
    """A summary of some twenty lines for a terminal."""
    counts = verdict.counts
    faults = {name.removeprefix("fault "): n for name, n in counts.items() if "fault " in name}
    lines = [
        f"chaos, seed {seed}, {minutes:g} min: {_word(verdict)}",
        "",
        f"faults     {_listed(faults)}",
        f"calls      {_picked(counts, 'calls ')}",
        f"jobs       {_some(counts, 'jobs', 'tasks', 'completed', 'failed', 'cancelled')}",
        f"attempts   {_some(counts, 'rescues', 'interruptions', 'failures')}",
        f"webhooks   {_picked(counts, 'webhooks ')}",
        f"stale finishes rejected   {_number(counts.get('stale finishes rejected', 0))}",
        "",
        *(f"{name:<22} {_number(counts.get(name, 0))}" for name in _MUST_BE_NOUGHT),
        "",
        *(f"{name}: {_number(n)}" for name, n in counts.items() if name.endswith("(s)")),
    ]
    if verdict.invalid:
        lines += ["", *(f"invalid: {reason}" for reason in verdict.invalid)]
    if verdict.findings:
        lines += ["", f"{len(verdict.findings)} findings:", *verdict.lines()]
    return "\n".join(lines)


def _text(verdict: Verdict, seed: int, command: str, minutes: float, drawn: bool) -> Iterable[str]:
    yield f"# Chaos run: {_word(verdict)}"
    yield ""
    yield f"Seed {seed}, {minutes:g} minutes. `{command}`"
    yield ""
    yield "| must be nought | |"
    yield "| --- | ---: |"
    for name in _MUST_BE_NOUGHT:
        yield f"| {name.replace('_', ' ')} | {_number(verdict.counts.get(name, 0))} |"
    if verdict.invalid:
        yield from ("", "## Why this run proves nothing", "")
        yield from (f"- {reason}" for reason in verdict.invalid)
    if verdict.findings:
        yield from ("", f"## Findings ({len(verdict.findings)})", "")
        yield from (f"- {line}" for line in verdict.lines())
    if drawn:
        yield from ("", f"![Submitted, finished and waiting jobs, and faults]({PICTURE_NAME})")
    for title, belongs in _SECTIONS:
        rows = [(name, n) for name, n in verdict.counts.items() if belongs(name)]
        if rows:
            yield from ("", f"## {title}", "", "| | |", "| --- | ---: |")
            for name, number in rows:
                yield f"| {name.removeprefix('fault ').replace('_', ' ')} | {_number(number)} |"


def _draw(path: Path, verdict: Verdict, history: Sequence[Mapping[str, Any]], title: str) -> bool:
    try:
        from chaos.timeline import draw
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        return False
    draw(path, verdict.curves, history, title)
    return True


def _word(verdict: Verdict) -> str:
    if verdict.findings:
        return f"FAILED, {len(verdict.findings)} findings"
    return "INVALID" if verdict.invalid else "passed"


def _picked(counts: Mapping[str, float], prefix: str) -> str:
    return _listed({n.removeprefix(prefix): c for n, c in counts.items() if n.startswith(prefix)})


def _some(counts: Mapping[str, float], *names: str) -> str:
    return _listed({name: counts[name] for name in names if name in counts})


def _listed(counts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {_number(number)}" for name, number in counts.items())


def _number(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) else f"{number:,.2f}"
