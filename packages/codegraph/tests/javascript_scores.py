"""How many calls of JavaScript the analysis finds, by construct, and how many it invents.

``javascript_calls`` has a file for each construct, with several cases in it. A case begins with
``//// title`` and is a project of its own: ``main.js``, and others after ``//// file: name``. The
calls that happen when it runs are written in each file as ``//> caller -> callee, callee``, by
qualified names; ``main`` is the file itself, and a callee of another file is ``file:name``.
``(nothing)`` is for those that call nothing of the project.

A function without a name belongs to the declaration that it is written in, as long as nothing else
calls it. Otherwise it is ``(anonymous)``.

Print the table with ``python -m packages.codegraph.tests.javascript_scores``, and with the names of
constructs what is missing and wrong in them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from packages.codegraph.tests.graphs import analysed

CASES: Final = Path(__file__).parent / "javascript_calls"

Edge = tuple[str, str]


@dataclass
class Case:
    """Files, and the calls that they make."""

    construct: str
    title: str
    sources: dict[str, str] = field(default_factory=dict)
    expected: set[Edge] = field(default_factory=set)

    @property
    def found(self) -> set[Edge]:
        return analysed(self.sources).callees


@dataclass
class Score:
    """Of one construct, or of all."""

    construct: str
    expected: int = 0
    found: int = 0
    right: int = 0

    def add(self, expected: set[Edge], found: set[Edge]) -> None:
        self.expected += len(expected)
        self.found += len(found)
        self.right += len(expected & found)

    @property
    def precision(self) -> float:
        return 100 * self.right / self.found if self.found else 100.0

    @property
    def recall(self) -> float:
        return 100 * self.right / self.expected if self.expected else 100.0


def cases() -> Iterator[Case]:
    """All cases, construct by construct."""
    for file in sorted(CASES.glob("*.js")):
        yield from _cases_of(file.stem, file.read_text())


def _cases_of(construct: str, text: str) -> Iterator[Case]:
    case: Case | None = None
    path = "main.js"
    for line in text.splitlines():
        if line.startswith("//// file: "):
            path = line.removeprefix("//// file: ")
        elif line.startswith("//// "):
            if case is not None:
                yield case
            case, path = Case(construct, line.removeprefix("//// ")), "main.js"
            continue
        assert case is not None, line
        if line.startswith("//> "):
            case.expected.update(_edges(path, line.removeprefix("//> ")))
        if line or path in case.sources:
            case.sources[path] = case.sources.get(path, "") + line + "\n"
    if case is not None:
        yield case


def _edges(path: str, said: str) -> Iterator[Edge]:
    for part in said.split(";"):
        caller, _, callees = part.partition("->")
        origin = path if caller.strip() == "main" else f"{path}:{caller.strip()}"
        for name in map(str.strip, callees.split(",")):
            if name != "(nothing)":
                yield origin, name if ":" in name else f"{path}:{name}"


def scores(of: Iterable[Case]) -> tuple[list[Score], Score]:
    """By construct, and in all."""
    by_construct: dict[str, Score] = {}
    whole = Score("all")
    for case in of:
        found = case.found
        score = by_construct.setdefault(case.construct, Score(case.construct))
        for one in (score, whole):
            one.add(case.expected, found)
    return list(by_construct.values()), whole


def table(rows: Iterable[Score]) -> str:
    """The scores as a table."""
    lines = [
        "| construct | expected | found | right | precision | recall |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {row.construct} | {row.expected} | {row.found} | {row.right} "
        f"| {row.precision:.1f} % | {row.recall:.1f} % |"
        for row in rows
    ]
    return "\n".join(lines)


def _show(constructs: set[str]) -> None:
    for case in cases():
        if case.construct in constructs or "all" in constructs:
            found = case.found
            missing, wrong = case.expected - found, found - case.expected
            if missing or wrong:
                print(f"{case.construct}: {case.title}")
                for sign, edges in (("-", missing), ("+", wrong)):
                    for caller, callee in sorted(edges):
                        print(f"    {sign} {caller} -> {callee}")


if __name__ == "__main__":
    by_construct, whole = scores(cases())
    print(table([*by_construct, whole]))
    _show(set(sys.argv[1:]))
