"""The cases in ``vectors/*.json``: what every client of the API has to do, in whatever language."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

VECTORS = Path(__file__).with_name("vectors")

JOB_ID = "01JAV8M2Q0XW3N5T7R9Y1B3D5F"
JOB_URL = f"/api/v1/orgs/default/services/docs/jobs/{JOB_ID}"
TICKET = {
    "job_id": JOB_ID,
    "status": "queued",
    "poll_url": JOB_URL,
    "events_url": f"{JOB_URL}/events",
    "cancel_url": f"{JOB_URL}/cancel",
    "terminal": False,
}


END_EVENT = (
    f'event: end\ndata: {{"id":"{JOB_ID}","service_id":"docs","status":"completed",'
    '"terminal":true,"result_summary":1}\n\n'
)


def job(status: str, **fields: Any) -> dict[str, Any]:
    """A job's body, as the contract spells it."""
    return {
        "id": JOB_ID,
        "org_id": "default",
        "workspace_id": "default",
        "service_id": "docs",
        "version_id": "docs.v1",
        "endpoint_id": "docs.v1.post__analyze",
        "endpoint_key": "post__analyze",
        "execution_mode": "invocation",
        "lane": "standard",
        "status": status,
        "idempotency_key": None,
        "execution_id": None,
        "attempt_count": 1,
        "result_summary": None,
        "last_error": None,
        "pre_dispatch_age_seconds": 0.01,
        "stalled": False,
        "stalled_reason": None,
        "started_at": None,
        "completed_at": None,
        "expires_at": None,
        "created_at": "2026-01-31T12:00:00Z",
        "updated_at": "2026-01-31T12:00:00Z",
        "terminal": status in ("completed", "failed", "cancelled"),
        "progress": None,
        **fields,
    }


def cases(name: str) -> pytest.MarkDecorator:
    """Parametrize a test with the cases of ``vectors/<name>.json``."""
    loaded = json.loads((VECTORS / f"{name}.json").read_text("utf-8"))
    return pytest.mark.parametrize("case", loaded, ids=[case["name"] for case in loaded])
