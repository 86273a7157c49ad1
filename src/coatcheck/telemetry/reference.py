"""The reference page of the metrics, made from their declarations.

``python -m coatcheck.telemetry.reference > docs/reference/metrics.md`` writes it anew.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

from coatcheck.telemetry import metrics  # noqa: F401 - which declares them
from coatcheck.telemetry.instruments import DECLARED, LABEL_VALUES_MAX, Declared
from coatcheck.telemetry.queue_metrics import QUEUE_METRICS


def markdown() -> str:
    """The reference page of the metrics."""
    return "\n".join(
        [
            _PAGE_HEAD,
            "## Of the queue",
            "",
            "Read from the database at each scrape.",
            "",
            *_table(QUEUE_METRICS),
            "",
            "## Of the processes",
            "",
            _OF_PROCESSES,
            "",
            *_table(DECLARED),
            "",
        ]
    )


def _table(declared: Iterable[Declared]) -> Iterable[str]:
    yield "| metric | type | labels | says |"
    yield "| --- | --- | --- | --- |"
    for name, kind, text, labels in declared:
        shown = ", ".join(f"`{label}`" for label in labels)
        yield f"| `{name}` | {kind} | {shown} | {text} |"


_PAGE_HEAD: Final = """\
# Metrics

<!-- Made from src/coatcheck/telemetry by `python -m coatcheck.telemetry.reference`. -->

`GET /metrics` of any `coatcheck serve` shows them as Prometheus text: the sum over every server and
every worker. How to scrape, and what to watch:
[Watch with Prometheus](../how-to/watch-with-prometheus.md). `?scope=process` shows the server that
answers, alone.
"""

_OF_PROCESSES: Final = f"""\
Counters and histograms only grow, over restarts as well. Gauges are of processes that are there. A
histogram `x` has the series `x_bucket` (with the label `le`), `x_sum` and `x_count`. A label whose
values people make up (`endpoint`, `code`) has {LABEL_VALUES_MAX} of them in each process at most;
the rest is `other`."""


if __name__ == "__main__":
    sys.stdout.write(markdown())
