"""Every bound of the product, named with its unit."""

from __future__ import annotations

from typing import Final

PAYLOAD_BYTES_MAX: Final = 1024 * 1024
RESULT_BYTES_MAX: Final = 16 * 1024 * 1024
ERROR_MESSAGE_CHARACTERS_MAX: Final = 4_000
PROGRESS_NOTE_CHARACTERS_MAX: Final = 1_000
LOG_LINE_CHARACTERS_MAX: Final = 8_000
OUTPUT_CHUNK_BYTES_MAX: Final = 256 * 1024
ARTIFACT_NAME_CHARACTERS_MAX: Final = 255
ARTIFACT_BYTES_MAX: Final = 5 * 1024 * 1024 * 1024
IDEMPOTENCY_KEY_CHARACTERS_MAX: Final = 255
JSON_DEPTH_MAX: Final = 32
ARCHIVE_BYTES_MAX: Final = 500_000_000
INPUT_RECORD_SECONDS: Final = 90 * 86_400
"""How long a deletion receipt can be asked for."""

CRASHES_MAX: Final = 3
"""How often a job may lose its worker before it is taken for the cause and failed."""

CLAIM_ROWS_MAX: Final = 500
"""Batches of 1,000 flip the claim's plan and halve its throughput; see docs/adr/0004."""

SUBMIT_ROWS_MAX: Final = 1_000
"""Rows in one statement of the submit coalescer."""

FLOWS_SCANNED_MAX: Final = 1_000
"""Flows that one claim looks at in a lane; a cursor moves on to the others."""

API_KEY_NAME_CHARACTERS_MAX: Final = 100
KEY_LIFE_SECONDS_MAX: Final = 10 * 365 * 86_400
RATE_REQUESTS_MAX: Final = 1_000_000_000
RATE_SECONDS_MAX: Final = 86_400
STRIPE_EVENT_BYTES_MAX: Final = 256 * 1024
