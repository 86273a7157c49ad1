"""Every statement that ends jobs writes what belongs to an end."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.statements import Statement, statements

UPDATE: Final = re.compile(
    r"\bUPDATE jobs\b(?: AS \w+)?\s+SET\b(.*?)(?=\bFROM\b|\bWHERE\b|\Z)", re.DOTALL
)
STATE: Final = re.compile(r"(?<![\w.])state = ('\w+'|\S+)")
RETURNING: Final = re.compile(r"\bRETURNING\b(.*?)^\s*\),?$", re.DOTALL | re.MULTILINE)
INCLUDED: Final = re.compile(r"/\* include (?:coatcheck\.core:)?jobs/(\w+) \*/")
MOVES: Final = {
    f"'{state}'"
    for state in ("queued", "dispatching", "processing", "finalizing", "cancel_requested")
}
"""States that a job does not end in. What is no such literal may be an end."""


def may_end(code: str) -> bool:
    """Whether a statement sets the state of jobs to one that may be terminal."""
    return any(
        "jobs/set_end" in assigned or not {*STATE.findall(assigned)} <= MOVES
        for assigned in UPDATE.findall(code)
    )


def is_complete(code: str) -> bool:
    """Whether a statement sets and writes what belongs to the end of a job.

    Without the time in what `changed` returns, its jobs would be deleted never, or at a wrong time.
    """
    returned = [columns for columns in RETURNING.findall(code) if "j.run_seconds" in columns]
    return {"set_end", "ended"} <= {*INCLUDED.findall(code)} and all(
        "j.expires_at," in columns for columns in returned
    )


PARTS: Final = {
    f"claims/{name}": next(
        each.code for each in statements() if str(each).endswith(f".core.queries:claims/{name}")
    )
    for name in ("completions", "completed")
}
"""Parts of statements that complete jobs: judged as a part of each."""
KEEPS_THE_STATE: Final = "coatcheck.core.queries:remote_calls/park"
"""Sets the state that a held job has, if it is not that of a claim."""


def whole(statement: Statement) -> str:
    """The code of a statement, with its parts."""
    code = statement.code
    for name, part in PARTS.items():
        code = code.replace(f"/* include {name} */", part)
    return code


ENDS: Final = [
    statement
    for statement in statements()
    if may_end(whole(statement))
    and str(statement) != KEEPS_THE_STATE
    and str(statement).rpartition(":")[2] not in PARTS
]


@pytest.mark.parametrize("statement", ENDS, ids=str)
def test_a_statement_that_ends_jobs_writes_what_belongs_to_it(statement: Statement) -> None:
    assert is_complete(whole(statement)), "include jobs/set_end and jobs/ended"


def test_the_parts_of_an_end_are_written_together() -> None:
    (ended,) = (each for each in statements() if str(each).endswith("queries:jobs/ended"))
    assert re.findall(r"/\* include (\S+) \*/", ended.code) == [
        "usage/meter",
        "jobs/record_expiries",
        "jobs/record_unsuccessful",
        "jobs/record_tasks",
        "webhooks/write_deliveries_from_moved",
        "reports/note_attempts",
    ]


def test_the_statements_that_end_jobs_are_found() -> None:
    assert {str(statement).rpartition(":")[2] for statement in ENDS} == {
        "claims/complete",
        "claims/complete_and_notify",
        "claims/exchange",
        "claims/release_claim",
        "claims/settle",
        "jobs/cancel",
        "maintenance/expire_waiting",
        "maintenance/fail_overrun",
        "maintenance/rescue",
        "remote_calls/complete",
        "removal/cancel_waiting",
    }


@pytest.mark.parametrize(
    "planted",
    [
        "UPDATE jobs SET state = 'failed', finished_at = now() WHERE org_id = $1 AND id = $2",
        """WITH changed AS (
            UPDATE jobs AS j SET lease = NULL, state = 'cancelled' FROM late AS l RETURNING j.id
        ) SELECT""",
        "UPDATE jobs AS j SET state = CASE WHEN j.failures > 3 THEN 'failed' ELSE 'queued' END",
        "UPDATE jobs AS j SET state = next.state FROM next",
        "UPDATE jobs AS j SET /* include jobs/set_end */, error_code = 'lost' FROM next",
        """WITH changed AS (UPDATE jobs AS j SET state = 'completed' FROM next),
        /* include jobs/ended */ SELECT""",
        """WITH changed AS (
            UPDATE jobs AS j SET /* include jobs/set_end */ FROM next
            RETURNING j.org_id, j.id, j.state, j.run_seconds, old.state AS previous
        ),
        /* include jobs/ended */
        SELECT""",
    ],
)
def test_a_statement_that_forgets_a_part_is_found(planted: str) -> None:
    assert may_end(planted)
    assert not is_complete(planted)


@pytest.mark.parametrize(
    "moved",
    [
        "UPDATE jobs AS j SET state = 'queued', updated_at = now() FROM due WHERE j.id = due.id",
        "UPDATE jobs AS j SET progress = 1 WHERE j.state = 'failed'",
        "UPDATE runs SET state = 'failed' WHERE id = $1",
    ],
)
def test_a_statement_that_ends_no_job_need_not_write_an_end(moved: str) -> None:
    assert not may_end(moved)
