"""Findings of checks, and the verdict on a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

SHOWN_MAX = 20
"""Findings of one check that are spelt out. A thousand of a kind have one cause."""


@dataclass(frozen=True)
class Finding:
    """Something that must not be. ``invariant`` is its letter in the design."""

    check: str
    invariant: str
    detail: str

    def __str__(self) -> str:
        return f"[{self.invariant}] {self.check}: {self.detail}"


@dataclass
class Verdict:
    """What was found and counted. ``invalid`` says why a run proves nothing."""

    findings: list[Finding] = field(default_factory=list)
    counts: dict[str, float] = field(default_factory=dict)
    invalid: list[str] = field(default_factory=list)
    curves: dict[str, list[int]] = field(default_factory=dict)
    """How many in each second of the run: ``submitted`` and ``ended``."""

    @property
    def passed(self) -> bool:
        """Nothing was found, and the run was one in which something could have been."""
        return not self.findings and not self.invalid

    def by_check(self) -> dict[str, list[Finding]]:
        grouped: dict[str, list[Finding]] = {}
        for finding in self.findings:
            grouped.setdefault(finding.check, []).append(finding)
        return grouped

    def lines(self) -> Iterable[str]:
        """The findings, a line each, and of each check no more than a reader can use."""
        for check, found in self.by_check().items():
            yield from map(str, found[:SHOWN_MAX])
            if len(found) > SHOWN_MAX:
                yield f"[{found[0].invariant}] {check}: {len(found) - SHOWN_MAX} more"
