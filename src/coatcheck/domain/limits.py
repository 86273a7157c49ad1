"""All limits, named with their units."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

PAYLOAD_BYTES_MAX: Final = 1024 * 1024
RESULT_BYTES_MAX: Final = 16 * 1024 * 1024
ERROR_MESSAGE_CHARACTERS_MAX: Final = 4_000
PROGRESS_NOTE_CHARACTERS_MAX: Final = 1_000
LOG_LINE_CHARACTERS_MAX: Final = 8_000
OUTPUT_CHUNK_BYTES_MAX: Final = 256 * 1024
REPORT_OVERHEAD_BYTES: Final = 256
"""The overhead of a pending log line or chunk besides its text, so that small ones count."""
REPORTS_WAITING_BYTES_PER_JOB: Final = 512 * 1024
REPORTS_WAITING_BYTES: Final = 16 * 1024 * 1024
"""Pending log lines and chunks of one job, and of all jobs of a worker. Beyond either, a handler
that reports must wait."""
UNAWAITED_REPORTS_BYTES_PER_JOB: Final = 4 * 1024 * 1024
UNAWAITED_REPORTS_BYTES: Final = 32 * 1024 * 1024
"""The same for async handlers that do not await their reports and cannot be slowed down: beyond
either, reporting raises. The second covers all jobs, and applies only to those over their own."""
REPORTS_UNDERWAY_BYTES: Final = 128 * 1024
"""How far a handler in a thread or a process may be ahead of the reports its worker accepted."""
ARTIFACT_NAME_CHARACTERS_MAX: Final = 255
ARTIFACT_BYTES_MAX: Final = 5 * 1024 * 1024 * 1024
IDEMPOTENCY_KEY_CHARACTERS_MAX: Final = 255
DELAY_SECONDS_MAX: Final = 366 * 86_400
"""For a job submitted over HTTP: no deployment stays unchanged for longer."""
JSON_DEPTH_MAX: Final = 32
INFLATED_RATIO_MAX: Final = 100
"""The highest compression ratio of a gzip body, once it inflates to more than:"""
INFLATED_BYTES_FREE: Final = 1024 * 1024
ARCHIVE_BYTES_MAX: Final = 500_000_000
ARCHIVE_ENTRIES_MAX: Final = 500_000
ARCHIVE_UNPACKED_MB_MAX: Final = 10 * 1024
"""Defaults of the settings: 500 MB of real source code have fewer files, and unpack to less."""
LIST_BYTES_MAX: Final = 10_000_000_000
"""The size of a task list, uploaded or streamed."""
RUN_TASKS_MAX: Final = 10_000_000
CUSTOM_ID_CHARACTERS_MAX: Final = 255
BAD_LINES_KEPT_MAX: Final = 1_000
"""Per list: this many are reported one by one; the rest are counted."""
RESULT_INLINE_BYTES_MAX: Final = 64 * 1024
"""Pages and events omit longer results; their URL returns them, and there each is held once for
all readers."""
PAGE_RESULTS_BYTES_MAX: Final = 4 * 1024 * 1024
"""All results in a page together: the more rows it may have, the sooner a result is omitted."""
EVENT_RESULT_BYTES_MAX: Final = OUTPUT_CHUNK_BYTES_MAX + 4 * 1024
"""A result in a job's end event: a chunk's size, and its envelope."""
EVENTS_PAGE_BYTES_MAX: Final = 256 * 1024
"""A job's events read at a time; one is always read."""
SIGNED_URL_SECONDS_MAX: Final = 7 * 86_400
"""Cloud stores sign for no longer."""
INPUT_RECORD_SECONDS: Final = 90 * 86_400
"""How long a deletion receipt is available."""

RUNS_MAX: Final = 1_000
"""Runs of one batch, because its status shows all of them."""

UNSERVED_ENDPOINT_SECONDS: Final = 7 * 86_400
"""How long an endpoint that no live worker publishes stays in the catalogue: as long as a failed
job is kept by default."""

CRASHES_MAX: Final = 3
"""How often a job may lose its worker before it counts as the cause and fails, if no other job was
lost with it the last time."""

CRASHES_TOGETHER_MAX: Final = 9
"""The same for a job that was always lost together with others: all but one are bystanders."""

CLAIM_ROWS_MAX: Final = 500
"""Claims of 1,000 jobs flip the plan and halve the throughput; see docs/adr/0004."""

SUBMIT_ROWS_MAX: Final = 1_000
"""Rows in one batched INSERT of submissions."""

QUEUES_SCANNED_MAX: Final = 1_000
"""Queues that one claim examines in a lane; a cursor moves on to the others."""

RUN_QUEUES_SCANNED_MAX: Final = 200
"""Queues of one run that a claim examines; the next claim continues there."""

RATE_BURST_SECONDS: Final = 0.05
"""How far starts may be ahead of a rate, so that a late claim can catch up: in any ``s`` seconds
there are at most ``1 + rate * (s + RATE_BURST_SECONDS)`` of them."""

ROLL_UPS_KEPT_SECONDS: Final = MappingProxyType(
    {60: 4 * 3_600, 900: 3 * 86_400, 3_600: 31 * 86_400}
)
"""How long statistics are kept, by the length of their interval in seconds."""
USAGE_HOURS_KEPT_DAYS: Final = 62
"""How long hourly usage is kept; daily usage is kept for good."""
USAGE_DAYS_MAX: Final = 366
"""Days per usage request; with hourly usage at most ``USAGE_HOURLY_DAYS_MAX``."""
USAGE_HOURLY_DAYS_MAX: Final = 31
USAGE_REPORT_AFTER_SECONDS: Final = 3_600
"""A report is made this long after its period, when all jobs that ended in it are committed."""
USAGE_REPORT_DAYS_BACK: Final = 35
"""How long after its period a report is still made, if nothing ran in time."""
USAGE_REPORTS_KEPT_DAYS: Final = 400

API_KEY_NAME_CHARACTERS_MAX: Final = 100
KEY_LIFE_SECONDS_MAX: Final = 10 * 365 * 86_400
RATE_REQUESTS_MAX: Final = 1_000_000_000
RATE_SECONDS_MAX: Final = 86_400
STRIPE_EVENT_BYTES_MAX: Final = 256 * 1024


def page_result_bytes_max(rows: int) -> int:
    """How long a result may be in a page of so many rows; longer ones are omitted."""
    return min(RESULT_INLINE_BYTES_MAX, PAGE_RESULTS_BYTES_MAX // max(1, rows))
