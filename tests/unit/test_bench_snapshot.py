"""The bench's report of a held snapshot: it compares the end with the beginning."""

from __future__ import annotations

from typing import Final

from bench.results import Results
from bench.snapshot.figures import TABLES, SnapshotFigure, dead, index_mb, table_mb
from bench.snapshot.report import snapshot_tables

OF_TABLES: Final = {figure(table) for table in TABLES for figure in (dead, table_mb, index_mb)}


def test_the_report_marks_what_is_worse_at_the_end_than_at_the_beginning() -> None:
    results = Results()
    for number in range(12):
        sample = dict.fromkeys(OF_TABLES, 1.0) | dict.fromkeys(SnapshotFigure, 100.0)
        sample[SnapshotFigure.PACED_CLAIM] += 2 * number
        sample[SnapshotFigure.BURST_RATE] -= number
        sample[dead("queue")] += number
        results.snapshot.append(sample)
    lines = snapshot_tables(results).splitlines()
    assert lines[2] == (
        "| claims and completions, paced: CPU (us/job) | 101.0 | 121.0 | **1.20** | at most 1.1 |"
    )
    assert lines[4] == (
        "| a burst, until it is drained (jobs/s) | 99.5 | 89.5 | **0.90** | at least 0.95 |"
    )
    assert "| queue | 2 | 12 | 1.0 | 1.0 | 1.0 | 1.0 |" in lines
