"""Every bound of the product, named with its unit."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

PAYLOAD_BYTES_MAX: Final = 1024 * 1024
LLM_PAYLOAD_BYTES_MAX: Final = 32 * 1024 * 1024
"""Of a job of the llm surface: messages come with their images."""
RESULT_BYTES_MAX: Final = 16 * 1024 * 1024
ERROR_MESSAGE_CHARACTERS_MAX: Final = 4_000
PROGRESS_NOTE_CHARACTERS_MAX: Final = 1_000
LOG_LINE_CHARACTERS_MAX: Final = 8_000
OUTPUT_CHUNK_BYTES_MAX: Final = 256 * 1024
REPORT_OVERHEAD_BYTES: Final = 256
"""What a log line or a chunk that waits to be stored costs besides its text: small ones count."""
REPORTS_WAITING_BYTES_PER_JOB: Final = 512 * 1024
REPORTS_WAITING_BYTES: Final = 16 * 1024 * 1024
"""Log lines and chunks of one job, and of all jobs of a worker, that wait to be stored. Beyond
either, a handler that reports has to wait."""
UNAWAITED_REPORTS_BYTES_PER_JOB: Final = 4 * 1024 * 1024
UNAWAITED_REPORTS_BYTES: Final = 32 * 1024 * 1024
"""The same of async handlers that do not await their reports, which nothing can hold back: beyond
either, reporting raises. The second is of all jobs, and met by those that are over their own."""
REPORTS_UNDERWAY_BYTES: Final = 128 * 1024
"""What a handler in a thread or a process may be ahead of the reports that its worker has taken."""
ARTIFACT_NAME_CHARACTERS_MAX: Final = 255
ARTIFACT_BYTES_MAX: Final = 5 * 1024 * 1024 * 1024
IDEMPOTENCY_KEY_CHARACTERS_MAX: Final = 255
DELAY_SECONDS_MAX: Final = 366 * 86_400
"""Of a job that is submitted over HTTP: for longer nobody's deployment stands still."""
JSON_DEPTH_MAX: Final = 32
INFLATED_RATIO_MAX: Final = 100
"""How many times its size a gzip body may amount to, once it is over so many bytes:"""
INFLATED_BYTES_FREE: Final = 1024 * 1024
ARCHIVE_BYTES_MAX: Final = 500_000_000
ARCHIVE_ENTRIES_MAX: Final = 500_000
ARCHIVE_UNPACKED_MB_MAX: Final = 10 * 1024
"""Unless the settings say otherwise: 500 MB of real source code have fewer files, and unpack to
less."""
LIST_BYTES_MAX: Final = 10_000_000_000
"""Of a list of tasks, staged or streamed."""
RUN_TASKS_MAX: Final = 10_000_000
CUSTOM_ID_CHARACTERS_MAX: Final = 255
BAD_LINES_KEPT_MAX: Final = 1_000
"""Of one list: so many are told one by one; the rest are counted."""
RESULT_INLINE_BYTES_MAX: Final = 64 * 1024
"""A longer result is left out of pages and events, and read by its URL; there it is held once for
all who read it."""
PAGE_RESULTS_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of all results in a page: the more rows it may have, the sooner a result is left out."""
EVENT_RESULT_BYTES_MAX: Final = OUTPUT_CHUNK_BYTES_MAX + 4 * 1024
"""Of a result in the event that tells of a job's end: a chunk's, and what is put around it."""
EVENTS_PAGE_BYTES_MAX: Final = 256 * 1024
"""Of a job's events that are read at a time; one is always read."""
SIGNED_URL_SECONDS_MAX: Final = 7 * 86_400
"""No cloud store signs for longer."""
INPUT_RECORD_SECONDS: Final = 90 * 86_400
"""How long a deletion receipt can be asked for."""

RUNS_MAX: Final = 1_000
"""Runs of one batch: its status shows them all."""

FORGOTTEN_BATCH_SECONDS: Final = 14 * 86_400
"""How long a list that failed waits for somebody before its batch is removed, and how long an open
batch waits for more tasks before it is closed."""

UNSERVED_ENDPOINT_SECONDS: Final = 7 * 86_400
"""How long an endpoint that no live worker publishes stays in the catalogue: as long as a job that
failed is kept by default."""

CRASHES_MAX: Final = 3
"""How often a job may lose its worker before it is taken for the cause and failed, if nothing else
fell with it the last time."""

CRASHES_TOGETHER_MAX: Final = 9
"""The same for a job that always fell together with others: all but one of them are bystanders."""

LLM_DROPS_MAX: Final = 5
"""How often a target may drop a chat in mid-answer, and be there right afterwards, before the chat
is taken for the cause and failed."""

CLAIM_ROWS_MAX: Final = 500
"""Batches of 1,000 flip the claim's plan and halve its throughput; see docs/adr/0004."""

SUBMIT_ROWS_MAX: Final = 1_000
"""Rows in one statement of the submit coalescer."""

FLOWS_SCANNED_MAX: Final = 1_000
"""Flows that one claim looks at in a lane; a cursor moves on to the others."""

RUN_FLOWS_SCANNED_MAX: Final = 200
"""Flows of one run that a claim looks at; the next one goes on there."""

RATE_BURST_SECONDS: Final = 0.05
"""How far the starts under a rate may be ahead of it: so a claim that comes late catches up, and
within any ``s`` seconds there are at most ``1 + rate * (s + RATE_BURST_SECONDS)`` of them."""

ROLL_UPS_KEPT_SECONDS: Final = MappingProxyType(
    {60: 4 * 3_600, 900: 3 * 86_400, 3_600: 31 * 86_400}
)
"""How long statistics are kept, by the step that they are counted in, in seconds."""
USAGE_HOURS_KEPT_DAYS: Final = 62
"""How long usage is kept by the hour; by the day it is kept for good."""
USAGE_DAYS_MAX: Final = 366
"""Days that one reading of usage spans; by the hour at most ``USAGE_HOURLY_DAYS_MAX``."""
USAGE_HOURLY_DAYS_MAX: Final = 31
USAGE_REPORT_AFTER_SECONDS: Final = 3_600
"""A report is made this long after its period ended: whatever ended jobs in it has committed."""
USAGE_REPORT_DAYS_BACK: Final = 35
"""A report that was not made in time, because nothing ran, is made until this long after."""
USAGE_REPORTS_KEPT_DAYS: Final = 400

API_KEY_NAME_CHARACTERS_MAX: Final = 100
KEY_LIFE_SECONDS_MAX: Final = 10 * 365 * 86_400
RATE_REQUESTS_MAX: Final = 1_000_000_000
RATE_SECONDS_MAX: Final = 86_400
STRIPE_EVENT_BYTES_MAX: Final = 256 * 1024


def page_result_bytes_max(rows: int) -> int:
    """How long a result may be in a page of at most so many rows; a longer one is left out."""
    return min(RESULT_INLINE_BYTES_MAX, PAGE_RESULTS_BYTES_MAX // max(1, rows))
