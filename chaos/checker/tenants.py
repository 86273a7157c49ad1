"""J. Tenant A never observes tenant B: another tenant's id answers the same bytes as an unknown id.
And A. To its own tenant, the API shows each job as it is stored."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from uuid import UUID

import httpx2

from chaos.checker.evidence import Evidence
from chaos.checker.finding import Finding
from chaos.checker.ids import spelt
from coatcheck.domain.ids import new_id

CHECK = "tenants"
SHOWN_CHECK = "shown as it is"
SAMPLE = 60
"""The number of jobs to request per organisation."""

_EVERYWHERE: Mapping[str, Callable[[str, str], str]] = {
    "console": lambda org, job: f"/api/v1/orgs/{org}/jobs/{job}",
    "graphs": lambda org, job: f"/v1/graphs/jobs/{job}",
    "llm": lambda org, job: f"/jobs/{job}",
    "speech": lambda org, job: f"/tasks/{job}",
    "batches": lambda org, job: f"/v1/jobs/{job}",
}
"""Routes that take only a job id."""

_OF_THE_REQUEST = re.compile(r'("(?:instance|requestId|request_id|timestamp)":\s*)"[^"]*"')


async def tenants_are_apart(evidence: Evidence) -> list[Finding]:
    found: list[Finding] = []
    for org in evidence.keys:
        theirs = await _foreign(evidence, org)
        async with evidence.http(org) as client:
            for place, path in _EVERYWHERE.items():
                absent = await _asked(client, path(org, spelt(new_id())))
                for foreign in theirs:
                    answer = await _asked(client, path(org, spelt(foreign)))
                    if answer != absent:
                        found.append(
                            Finding(
                                CHECK,
                                "J",
                                f"{org} asked {place} for {spelt(foreign)}, which is not its own, "
                                f"and was answered {answer}; of none there is, {absent}",
                            )
                        )
    return found


async def shown_as_it_is(evidence: Evidence) -> list[Finding]:
    found = []
    for org in evidence.keys:
        rows = await evidence.sql.fetch(
            """
            SELECT id, state::text AS state FROM jobs
            WHERE org_id = $1 AND run_id IS NULL AND endpoint NOT LIKE 'batches.%'
            ORDER BY md5(id::text) LIMIT $2
            """,
            org,
            SAMPLE,
        )
        async with evidence.http(org) as client:
            for row in rows:
                answer = await client.get(_EVERYWHERE["console"](org, spelt(row["id"])))
                shown = answer.json().get("state") if answer.is_success else answer.status_code
                if shown != row["state"]:
                    found.append(
                        Finding(
                            SHOWN_CHECK,
                            "A",
                            f"job {spelt(row['id'])} of {org} is {row['state']}, and is shown as "
                            f"{shown}",
                        )
                    )
    return found


async def _foreign(evidence: Evidence, org: str) -> list[UUID]:
    """Jobs and batches of other organisations."""
    rows = await evidence.sql.fetch(
        """
        (SELECT id FROM jobs WHERE org_id <> $1 AND run_id IS NULL ORDER BY md5(id::text) LIMIT $2)
        UNION ALL
        (SELECT id FROM batches WHERE org_id <> $1 ORDER BY md5(id::text) LIMIT $2)
        """,
        org,
        SAMPLE // 6,
    )
    return [row["id"] for row in rows]


async def _asked(client: httpx2.AsyncClient, path: str) -> tuple[int, str]:
    """The status and the body, without the parts that differ between requests."""
    answer = await client.get(path)
    return answer.status_code, _OF_THE_REQUEST.sub(r"\1*", answer.text)
