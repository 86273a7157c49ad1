"""Whether a webhook is genuine: signed here by the specification's own library."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from standardwebhooks import Webhook

from coatcheck.client import Client, InvalidWebhook, verify_webhook

SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()
OTHER = "whsec_" + base64.b64encode(b"o" * 32).decode()
BODY = json.dumps(
    {"type": "job.completed", "timestamp": "2026-01-01T00:00:00Z", "data": {"id": "01J"}}
).encode()


def signed(
    body: bytes = BODY, secret: str = SECRET, at: datetime | None = None, **headers: str
) -> dict[str, str]:
    moment = at or datetime.now(UTC)
    made = {
        "Webhook-Id": "msg_1",
        "Webhook-Timestamp": str(int(moment.timestamp())),
        "Webhook-Signature": Webhook(secret).sign("msg_1", moment, body.decode()),
    }
    return made | headers


def test_a_genuine_one_says_what_happened_whatever_the_case_of_its_headers() -> None:
    for headers in (signed(), {name.lower(): value for name, value in signed().items()}):
        event = verify_webhook(BODY, headers, SECRET)
        assert (event.id, event.type, event.data) == ("msg_1", "job.completed", {"id": "01J"})
        assert event.timestamp == datetime(2026, 1, 1, tzinfo=UTC)
    with Client("http://127.0.0.1:9", "key") as client:
        assert client.webhooks.verify(BODY, signed(), SECRET) == event


def test_one_that_has_no_envelope_is_its_own_data() -> None:
    flat = {"type": "job.done", "timestamp": "2026-01-01T00:00:00Z", "job_id": "01J"}
    flat |= {"state": "done", "previous_state": "working"}
    body = json.dumps(flat).encode()
    event = verify_webhook(body, signed(body), SECRET)
    assert event.data == flat
    assert (event.state, event.previous_state) == ("done", "working")


def test_while_a_secret_is_rotated_either_side_may_know_both() -> None:
    both = signed()["Webhook-Signature"] + " " + signed(secret=OTHER)["Webhook-Signature"]
    headers = signed(**{"Webhook-Signature": both})
    assert verify_webhook(BODY, headers, SECRET) == verify_webhook(BODY, headers, OTHER)
    assert verify_webhook(BODY, signed(secret=OTHER), [SECRET, OTHER]).id == "msg_1"


Case = Callable[[], tuple[bytes, dict[str, str]]]

NOT_GENUINE: dict[str, Case] = {
    "another secret": lambda: (BODY, signed(secret=OTHER)),
    "another body": lambda: (BODY + b" ", signed()),
    "too old": lambda: (BODY, signed(at=datetime.now(UTC) - timedelta(minutes=6))),
    "too new": lambda: (BODY, signed(at=datetime.now(UTC) + timedelta(minutes=6))),
    "another id": lambda: (BODY, signed(**{"Webhook-Id": "msg_2"})),
    "no headers": lambda: (BODY, {}),
    "no signature": lambda: (BODY, signed(**{"Webhook-Signature": "nonsense"})),
    "no base64": lambda: (BODY, signed(**{"Webhook-Signature": "v1,ü"})),
    "no time": lambda: (BODY, signed(**{"Webhook-Timestamp": "now"})),
    "no text": lambda: (b"\xff", signed()),
    "no object": lambda: (b"[]", signed(b"[]")),
    "no event": lambda: (b"{}", signed(b"{}")),
}


@pytest.mark.parametrize("case", NOT_GENUINE.values(), ids=NOT_GENUINE)
def test_anything_else_is_refused(case: Case) -> None:
    body, headers = case()
    with pytest.raises(InvalidWebhook):
        verify_webhook(body, headers, SECRET)


def test_a_secret_that_is_none_is_said_without_repeating_it() -> None:
    for secret in ("whsec_", "whsec_hunter2ü"):
        with pytest.raises(ValueError, match="whsec_ and base64") as refused:
            verify_webhook(BODY, signed(), secret)
        assert "hunter2" not in str(refused.value)
    with pytest.raises(InvalidWebhook):
        verify_webhook(BODY, signed(), [])
