"""Findings of checks, and the verdict on a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

SHOWN_MAX = 20
"""The maximum number of findings shown per check. A thousand of a kind have one cause."""


@dataclass(frozen=True)
class Finding:
    """A violation. ``invariant`` is its letter in the design."""

    check: str
    invariant: str
    detail: str

    def __str__(self) -> str:
        return f"[{self.invariant}] {self.check}: {self.detail}"


@dataclass
class Verdict:
    """Findings and counts. ``invalid`` has the reasons why a run proves nothing."""

    findings: list[Finding] = field(default_factory=list)
    counts: dict[str, float] = field(default_factory=dict)
    invalid: list[str] = field(default_factory=list)
    curves: dict[str, list[int]] = field(default_factory=dict)
    """Counts for each second of the run: ``submitted`` and ``ended``."""

    @property
    def passed(self) -> bool:
        """Whether a valid run found nothing."""
        return not self.findings and not self.invalid

    def by_check(self) -> dict[str, list[Finding]]:
        grouped: dict[str, list[Finding]] = {}
        for finding in self.findings:
            grouped.setdefault(finding.check, []).append(finding)
        return grouped

    def lines(self) -> Iterable[str]:
        """The findings, one per line, with a limited number per check."""
        for check, found in self.by_check().items():
            yield from map(str, found[:SHOWN_MAX])
            if len(found) > SHOWN_MAX:
                yield f"[{found[0].invariant}] {check}: {len(found) - SHOWN_MAX} more"
