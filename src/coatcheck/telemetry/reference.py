"""Generates the metrics reference page from the declarations.

``python -m coatcheck.telemetry.reference > docs/reference/metrics.md`` regenerates it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

from coatcheck.telemetry import metrics  # noqa: F401 - which declares them
from coatcheck.telemetry.instruments import DECLARED, LABEL_VALUES_MAX, DeclaredMetric
from coatcheck.telemetry.queue_metrics import QUEUE_METRICS


def markdown() -> str:
    """The metrics reference page."""
    return "\n".join(
        [
            _PAGE_HEAD,
            "## Queue",
            "",
            "Read from the database at each scrape.",
            "",
            *_table(QUEUE_METRICS),
            "",
            "## Processes",
            "",
            _OF_PROCESSES,
            "",
            *_table(DECLARED),
            "",
        ]
    )


def _table(declared: Iterable[DeclaredMetric]) -> Iterable[str]:
    yield "| metric | type | labels | meaning |"
    yield "| --- | --- | --- | --- |"
    for name, kind, text, labels in declared:
        shown = ", ".join(f"`{label}`" for label in labels)
        yield f"| `{name}` | {kind} | {shown} | {text} |"


_PAGE_HEAD: Final = """\
# Metrics

<!-- Generated from src/coatcheck/telemetry by `python -m coatcheck.telemetry.reference`. -->

`GET /metrics` of any `coatcheck serve` returns these as Prometheus text, summed over all servers
and workers. How to scrape them, and what to watch:
[Watch with Prometheus](../how-to/watch-with-prometheus.md). `?scope=process` returns only the
metrics of the server that answers.
"""

_OF_PROCESSES: Final = f"""\
Counters and histograms only grow, even across restarts. Gauges cover live processes. A histogram
`x` has the series `x_bucket` (with the label `le`), `x_sum` and `x_count`. A label with
user-defined values (`endpoint`, `code`) has at most {LABEL_VALUES_MAX} of them per process; the
rest is `other`."""


if __name__ == "__main__":
    sys.stdout.write(markdown())
