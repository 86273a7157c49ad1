"""Progress on the terminal: the current contender, and each figure as it is measured."""

import sys
import time

from bench.catalogue import Figure


class ProgressLines:
    """Plain lines on standard error, so that standard output holds the table alone."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def note(self, text: str) -> None:
        elapsed = int(time.monotonic() - self._began)
        print(f"[{elapsed // 60:2d}:{elapsed % 60:02d}] {text}", file=sys.stderr, flush=True)

    def figure(self, label: str, figure: Figure, value: float) -> None:
        digits = 0 if figure.unit == "jobs/s" else 2
        self.note(f"    {label}: {value:,.{digits}f} {figure.unit}  {figure.title}")

    def fault(self, label: str, scenario: str, fault: Exception) -> None:
        self.note(f"    {label}: {scenario} FAILED: {fault}")
