"""Recall and precision of the call graph on ``call_cases.py``, by construct.

``python -m packages.codegraph.tests.call_scores`` prints the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from coatcheck_codegraph.facts import FILE, FileFacts
from coatcheck_codegraph.project import Project
from coatcheck_codegraph.resolve import resolve
from packages.codegraph.tests.call_cases import CASES, Case
from packages.codegraph.tests.graphs import parsed


@dataclass
class Score:
    """Edges that were found and are right, that were found, and that there are."""

    right: int = 0
    found: int = 0
    there: int = 0

    @property
    def recall(self) -> float:
        return self.right / self.there if self.there else 1.0

    @property
    def precision(self) -> float:
        return self.right / self.found if self.found else 1.0

    def add(self, other: Score) -> None:
        self.right += other.right
        self.found += other.found
        self.there += other.there


def found_in(case: Case) -> set[tuple[str, str]]:
    """The edges between functions that the analysis sees in a case."""
    sources = {"m.py": case.source, **dict(case.others)}
    project = Project([parsed(path, source) for path, source in sources.items()])
    names = {path: _names(facts) for path, facts in project.files.items()}
    return {
        (names[path][call.caller], names[call.callee.path][call.callee.index])
        for path, calls in resolve(project).calls.items()
        for call in calls
        if call.callee.declaration.kind == "function"
    }


def _names(facts: FileFacts) -> dict[int, str]:
    """The file is ``m``, its functions by their qualified names; lambdas are numbered."""
    module = facts.path.removesuffix(".py")
    prefix = "" if module == "m" else f"{module}:"
    lambdas: Counter[str] = Counter()
    names = {FILE: module}
    for index, declaration in enumerate(facts.declarations):
        name = declaration.qualified
        if declaration.name == "<lambda>":
            lambdas[name] += 1
            name += str(lambdas[name])
        names[index] = prefix + name
    return names


def scores(cases: Iterable[Case] = CASES) -> dict[str, Score]:
    """By construct, in the order in which the cases come."""
    found: dict[str, Score] = {}
    for case in cases:
        edges = found_in(case)
        score = Score(len(edges & case.edges), len(edges), len(case.edges))
        found.setdefault(case.construct, Score()).add(score)
    return found


def table(by_construct: dict[str, Score]) -> str:
    """The scores as a table, and their sum."""
    total = Score()
    for score in by_construct.values():
        total.add(score)
    lines = ["| construct | edges | found | right | recall | precision |", "| --- |" + " --- |" * 5]
    lines += [
        f"| {name} | {score.there} | {score.found} | {score.right} "
        f"| {score.recall:.1%} | {score.precision:.1%} |"
        for name, score in (*by_construct.items(), ("all", total))
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(scores()))
    for each in CASES:
        seen = found_in(each)
        for edge in sorted(each.edges - seen):
            print("not found:", each.construct, *edge)
        for edge in sorted(seen - each.edges):
            print("wrong:", each.construct, *edge)
