"""The results of planted bugs: a line for each as it happens, and a table at the end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from chaos.planted.bugs import Bug, Lane
from chaos.planted.lanes import Run


@dataclass(frozen=True)
class Row:
    """One bug, its lane and the result."""

    bug: Bug
    lane: Lane
    run: Run

    @property
    def caught(self) -> bool:
        return bool(self.run.caught_by)

    @property
    def verdict(self) -> str:
        """What caught it, or why nothing did."""
        if self.caught:
            return ", ".join(self.run.caught_by)
        return f"NOT CAUGHT: {self.run.trouble or f'{self.run.passed} tests or runs passed'}"

    def line(self) -> str:
        """The line printed at its end."""
        mark = "caught" if self.caught else "NOT CAUGHT"
        why = self.run.caught_by[0] if self.caught else self.verdict.partition(": ")[2]
        more = len(self.run.caught_by) - 1
        return f"{mark:>10}  {self.bug.name} ({self.run.seconds:.0f} s): {why}" + (
            f", and {more} more" if more > 0 else ""
        )


def write(rows: Sequence[Row], folder: Path) -> str:
    """Write ``planted.json`` and ``planted.md`` into ``folder``. Returns the text of the second."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "planted.json").write_text(json.dumps([_facts(row) for row in rows], indent=2) + "\n")
    text = markdown(rows)
    (folder / "planted.md").write_text(text)
    return text


def markdown(rows: Sequence[Row]) -> str:
    """The table as Markdown."""
    lines = [
        "| bug | breaks | what was broken | lane | caught by | seconds |",
        "| --- | --- | --- | --- | --- | --- |",
        *(
            f"| {row.bug.name} | {row.bug.invariant} | {row.bug.text} | {row.lane.name} "
            f"| {_cell(row)} | {row.run.seconds:.0f} |"
            for row in rows
        ),
    ]
    caught = sum(row.caught for row in rows)
    return "\n".join(lines) + f"\n\n{caught} of {len(rows)} caught.\n"


def _cell(row: Row) -> str:
    if not row.caught:
        return row.verdict.replace("|", "\\|").replace("\n", " ")
    return "<br>".join(f"`{name}`" for name in row.run.caught_by).replace("|", "\\|")


def _facts(row: Row) -> dict[str, object]:
    return {
        "bug": row.bug.name,
        "invariant": row.bug.invariant,
        "text": row.bug.text,
        "lane": str(row.lane),
        "caught": row.caught,
        "caught_by": row.run.caught_by,
        "trouble": row.run.trouble,
        "seconds": round(row.run.seconds, 1),
    }
