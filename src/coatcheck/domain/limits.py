"""All limits, named with their units."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

PAYLOAD_BYTES_MAX: Final = 1024 * 1024
"""The input of a job."""
RESULT_BYTES_MAX: Final = 16 * 1024 * 1024
"""The result of a job."""
ERROR_MESSAGE_CHARACTERS_MAX: Final = 4_000
"""The message of a job's error; longer ones are cut."""
PROGRESS_NOTE_CHARACTERS_MAX: Final = 1_000
"""The note of a progress report."""
LOG_LINE_CHARACTERS_MAX: Final = 8_000
"""A line of a job's log, and its fields as JSON. Longer lines that a handler prints are split."""
OUTPUT_CHUNK_BYTES_MAX: Final = 256 * 1024
"""A chunk of output."""
REPORT_OVERHEAD_BYTES: Final = 256
"""The overhead of a pending log line or chunk besides its text, so that small ones count."""
REPORTS_WAITING_BYTES_PER_JOB: Final = 512 * 1024
"""Log lines and chunks of one job that wait to be stored. Beyond it, a handler that reports must
wait."""
REPORTS_WAITING_BYTES: Final = 16 * 1024 * 1024
"""The same for all jobs of a worker."""
UNAWAITED_REPORTS_BYTES_PER_JOB: Final = 4 * 1024 * 1024
"""The same for an async handler that does not await its reports and cannot be slowed down: beyond
it, reporting raises."""
UNAWAITED_REPORTS_BYTES: Final = 32 * 1024 * 1024
"""The same for all jobs of a worker together; it applies only to those over their own."""
REPORTS_UNDERWAY_BYTES: Final = 128 * 1024
"""How far a handler in a thread or a process may be ahead of the reports its worker accepted."""
ARTIFACT_NAME_CHARACTERS_MAX: Final = 255
"""The name of a file that a job makes."""
ARTIFACT_BYTES_MAX: Final = 5 * 1024 * 1024 * 1024
"""A file that a job makes."""
IDEMPOTENCY_KEY_CHARACTERS_MAX: Final = 255
"""An idempotency key."""
DELAY_SECONDS_MAX: Final = 366 * 86_400
"""For a job submitted over HTTP: no deployment stays unchanged for longer."""
JSON_DEPTH_MAX: Final = 32
"""How deep a JSON body may be nested."""
INFLATED_RATIO_MAX: Final = 100
"""The highest compression ratio of a gzip body."""
INFLATED_BYTES_FREE: Final = 1024 * 1024
"""A gzip body that inflates to no more than this may have any compression ratio."""
ARCHIVE_BYTES_MAX: Final = 500_000_000
"""An archive of code. Default of its setting."""
ARCHIVE_ENTRIES_MAX: Final = 500_000
"""The entries of an archive: 500 MB of real source code have fewer. Default of its setting."""
ARCHIVE_UNPACKED_MB_MAX: Final = 10 * 1024
"""The size of an unpacked archive: 500 MB of real source code unpack to less. Default of its
setting."""
LIST_BYTES_MAX: Final = 10_000_000_000
"""The size of a task list, uploaded or streamed."""
RUN_TASKS_MAX: Final = 10_000_000
"""The tasks of a run of a batch."""
CUSTOM_ID_CHARACTERS_MAX: Final = 255
"""The caller's own id of a task."""
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

CLAIM_ROWS_MAX: Final = 1_000
"""A claim of fewer jobs pays more for its start and its commit (docs/adr/0066)."""

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
"""Days per usage request."""
USAGE_HOURLY_DAYS_MAX: Final = 31
"""The same with hourly usage."""
USAGE_REPORT_AFTER_SECONDS: Final = 3_600
"""A report is made this long after its period, when all jobs that ended in it are committed."""
USAGE_REPORT_DAYS_BACK: Final = 35
"""How long after its period a report is still made, if nothing ran in time."""
USAGE_REPORTS_KEPT_DAYS: Final = 400
"""How long usage reports are kept."""

API_KEY_NAME_CHARACTERS_MAX: Final = 100
"""The name of an API key."""
KEY_LIFE_SECONDS_MAX: Final = 10 * 365 * 86_400
"""How far ahead an API key may expire."""
RATE_REQUESTS_MAX: Final = 1_000_000_000
"""The requests in the window of a rate limit."""
RATE_SECONDS_MAX: Final = 86_400
"""The window of a rate limit."""
STRIPE_EVENT_BYTES_MAX: Final = 256 * 1024
"""An event that Stripe sends."""

SERVER_CONNECTIONS_MAX: Final = 12
"""Connections of a server process to PostgreSQL."""
WORKER_CONNECTIONS_MAX: Final = 10
"""Connections of a worker process to PostgreSQL, however many workers it runs."""
ENGINE_CONNECTIONS_MAX: Final = 8
"""Connections of an engine in a program to PostgreSQL."""


def page_result_bytes_max(rows: int) -> int:
    """How long a result may be in a page of so many rows; longer ones are omitted."""
    return min(RESULT_INLINE_BYTES_MAX, PAGE_RESULTS_BYTES_MAX // max(1, rows))
