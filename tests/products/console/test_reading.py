"""Looking at jobs: lists, one job, what happened to it and what it said."""

from __future__ import annotations

import pytest

from tests.products.console.callers import Caller
from tests.products.console.chores_service import doors

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_list_is_narrowed_by_what_a_job_is_and_how_it_stands(user: Caller) -> None:
    failed = await user.ended("sweep", room="hall")
    completed = await user.ended("say", words="hello")
    waiting = await user.hand_in("idle")
    every = [waiting, completed["id"], failed["id"]]
    assert await user.listed() == every
    for query, expected in (
        ({"state": "live"}, [waiting]),
        ({"state": "ended"}, every[1:]),
        ({"state": "failed"}, [failed["id"]]),
        ({"state": "queued,completed"}, every[:2]),
        ({"lane": "bulk"}, [waiting]),
        ({"surface": "gateway"}, every),
        ({"surface": "llm"}, []),
        ({"surface": "llm", "service": "chores"}, []),
        ({"service": "chores"}, every),
        ({"service": "nothing"}, []),
        ({"endpoint": "chores.post__say"}, [completed["id"]]),
        ({"owner": failed["owner"]}, every),
        ({"owner": "user:somebody"}, []),
        ({"error_code": "no_broom"}, [failed["id"]]),
        ({"created_after": completed["created_at"]}, every[:2]),
        ({"created_before": completed["created_at"]}, [failed["id"]]),
        ({"q": waiting}, [waiting]),
        ({"q": failed["request_id"]}, [failed["id"]]),
        ({"q": "nothing of the kind"}, []),
    ):
        assert await user.listed(**query) == expected, query


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"state": "over"}, "state"),
        ({"state": ""}, "state"),
        ({"lane": "fast"}, "lane"),
        ({"surface": "moon"}, "surface"),
        ({"created_after": "yesterday"}, "created_after"),
        ({"created_after": "2026-01-01T00:00:00"}, "created_after"),
        ({"cursor": "nonsense"}, "cursor"),
        ({"limit": "0"}, "limit"),
        ({"q": ""}, "q"),
        ({"colour": "red"}, "colour"),
    ],
)
async def test_a_query_that_means_nothing_is_refused_by_name(
    user: Caller, query: dict[str, str], field: str
) -> None:
    answer = await user.ask("GET", "jobs", params=query)
    assert answer.status_code == 400
    assert [detail["field"] for detail in answer.json()["details"]] == [field]


async def test_pages_follow_each_other_and_miss_nothing(user: Caller) -> None:
    handed_in = [await user.hand_in("idle") for _ in range(5)]
    for query in ({}, {"state": "live"}):
        seen = []
        cursor: dict[str, str] = {}
        while True:
            page = await user.get("jobs", limit=2, **query, **cursor)
            assert len(page["items"]) <= 2
            seen += [job["id"] for job in page["items"]]
            if page["next"] is None:
                break
            cursor = {"cursor": page["next"]}
        assert seen == handed_in[::-1]


async def test_a_job_says_what_people_call_it_and_where_all_of_it_is(
    user: Caller, org: str
) -> None:
    job = await user.ended("say", words="hello", key="my key")
    assert (job["surface"], job["service"], job["endpoint"]) == ("gateway", "chores", "POST /say")
    assert (job["engine_endpoint"], job["idempotency_key"]) == ("chores.post__say", "my key")
    assert (job["result"], job["result_truncated"]) == ("hello", False)
    assert job["result_bytes"] == len('"hello"')
    assert await user.listed(q="my key") == [job["id"]]
    urls = job["urls"]
    own = f"/api/v1/orgs/{org}/jobs/{job['id']}"
    assert urls["self"] == own
    assert (urls["retry"], urls["input"], urls["receipt"], urls["batch"]) == (None,) * 4
    for name in ("self", "surface", "log", "timeline", "explain", "artifacts"):
        assert (await user.ask("GET", urls[name])).status_code == 200, name


async def test_a_result_too_long_to_be_shown_is_left_out(user: Caller) -> None:
    job = await user.ended("say", words="x" * 70_000)
    assert (job["result"], job["result_truncated"], job["result_bytes"]) == (None, True, 70_002)
    surface = await user.get(job["urls"]["surface"])
    assert len(surface["result_summary"]) == 70_000


async def test_the_timeline_tells_of_every_attempt_and_the_log_what_was_said(
    user: Caller,
) -> None:
    job = await user.ended("dust", room="shelf")
    items = (await user.get(f"jobs/{job['id']}/timeline"))["items"]
    assert [(item["kind"], item["state"], item["attempt"]) for item in items] == [
        ("created", "queued", None),
        ("queued", "queued", None),
        ("claimed", "dispatching", 1),
        ("started", "processing", 1),
        ("attempt_failed", "retrying", 1),
        ("retry_scheduled", "retrying", 1),
        ("claimed", "dispatching", 2),
        ("started", "processing", 2),
        ("attempt_failed", "failed", 2),
        ("finished", "failed", None),
    ]
    assert [item["at"] for item in items] == sorted(item["at"] for item in items)
    failed, finished = items[-2:]
    assert (failed["code"], failed["message"]) == ("retry_later", "the shelf is too dusty")
    assert finished["code"] == "max_retries_exhausted"
    log = await user.get(f"jobs/{job['id']}/log")
    assert [entry["kind"] for entry in log["items"]] == ["attempt", "attempt", "alert"]
    assert log["next"] is None
    first = await user.get(f"jobs/{job['id']}/log", limit=1)
    rest = await user.get(f"jobs/{job['id']}/log", after=first["next"])
    assert first["items"] + rest["items"] == log["items"]


async def test_log_lines_are_shown_with_their_level_and_attempts_are_no_part_of_a_stream(
    user: Caller,
) -> None:
    job = await user.ended("sweep", room="porch")
    log = (await user.get(f"jobs/{job['id']}/log"))["items"]
    assert [(entry["kind"], entry["level"], entry["message"]) for entry in log] == [
        ("log", "info", "sweeping porch"),
        ("attempt", None, "nothing to sweep the porch with"),
    ]
    for path in (job["urls"]["events"], f"{job['urls']['surface']}/events"):
        stream = (await user.ask("GET", path)).text
        assert stream.count("event: log") == 1
        assert "event: attempt" not in stream
        assert "event: end" in stream


async def test_a_job_that_is_told_to_stop_shows_that_it_was(user: Caller, org: str) -> None:
    running = await user.hand_in("wait", door=org)
    await doors.entered[org].wait()
    told = await user.post(f"jobs/{running}/cancel")
    assert told.status_code in (200, 202)
    job = await user.wait_for(running)
    assert (job["state"], job["error"]["code"]) == ("cancelled", "cancelled")
    kinds = [item["kind"] for item in (await user.get(f"jobs/{running}/timeline"))["items"]]
    assert kinds[-2:] == ["interrupted", "finished"]
