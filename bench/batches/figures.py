"""The names and units of the batches scenario's figures."""

from dataclasses import dataclass
from enum import StrEnum


class BatchFigure(StrEnum):
    ACCEPTED = "accepted"
    INGEST = "ingest"
    RAW_COPY = "raw_copy"
    TASK_DRAIN = "task_drain"
    SINGLE_DRAIN = "single_drain"
    COMPLETION_SEEN = "completion_seen"
    COMPLETION_EVENTS = "completion_events"
    SMALL_BATCH = "small_batch"
    SMALL_TASKS = "small_tasks"
    EXPORT = "export"
    EXPORT_MEGABYTES = "export_megabytes"
    SCRAPE_PAGES = "scrape_pages"
    SCRAPE_SECONDS = "scrape_seconds"
    SCRAPE_AT_ONCE = "scrape_at_once"
    SCRAPE_RUN_RATE = "scrape_run_rate"
    SCRAPE_HOST_RATE = "scrape_host_rate"


@dataclass(frozen=True)
class Row:
    figure: BatchFigure
    title: str
    unit: str
    digits: int = 0


ROWS = (
    Row(BatchFigure.ACCEPTED, "POST /v1/jobs with a staged list, until its 202", "ms", 1),
    Row(BatchFigure.INGEST, "ingest, from submission until all tasks are stored", "tasks/s"),
    Row(BatchFigure.RAW_COPY, "raw binary COPY of the same rows, same table and indexes", "rows/s"),
    Row(BatchFigure.TASK_DRAIN, "drain of the batch's tasks, 2 workers", "tasks/s"),
    Row(BatchFigure.SINGLE_DRAIN, "drain of as many single jobs, 2 workers", "jobs/s"),
    Row(
        BatchFigure.COMPLETION_SEEN,
        "from the last task's end until a client that waits has the completed job",
        "ms",
    ),
    Row(BatchFigure.COMPLETION_EVENTS, "completion events of the batch", "webhooks"),
    Row(
        BatchFigure.SMALL_BATCH,
        "a batch of 10 tasks submitted meanwhile, until its client has it completed",
        "ms",
    ),
    Row(BatchFigure.SMALL_TASKS, "of that, until its last task had ended", "ms"),
    Row(BatchFigure.EXPORT, "export, from its request until it is complete", "tasks/s"),
    Row(BatchFigure.EXPORT_MEGABYTES, "size of the export", "MB", 1),
    Row(BatchFigure.SCRAPE_PAGES, "scrape: requests that the server saw", "requests"),
    Row(BatchFigure.SCRAPE_SECONDS, "scrape: from submission until it is completed", "s", 1),
    Row(BatchFigure.SCRAPE_AT_ONCE, "scrape: most requests at once, as the server saw", "requests"),
    Row(BatchFigure.SCRAPE_RUN_RATE, "scrape: most requests in any second", "requests"),
    Row(
        BatchFigure.SCRAPE_HOST_RATE, "scrape: most requests of one host in any second", "requests"
    ),
)
