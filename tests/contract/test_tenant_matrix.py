"""Every route against every kind of caller who may not, with the exact answer to each.

The routes are those that the application serves: one that is not in the table fails the first test
here. What may not be told apart must be the same to the byte, but for the time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import httpx2

from coatcheck.domain import tenants
from coatcheck.domain.tenants import Scope
from tests.contract.matrix import ENTRIES, NOT_FOUND, Target, targets
from tests.contract.tenant_resources import TenantResources
from tests.deployment import bearer

TIMESTAMP = re.compile(rb'"timestamp":"[^"]*"')
UNLIKE_BY_NATURE = {"date", "content-length"}

Credentials = Mapping[str, dict[str, str | bytes]]


async def credentials_that_do_not_count(resources: TenantResources) -> Credentials:
    good = resources.deployment.key
    unknown = tenants.mint().text
    wrong_secret = good.rpartition("_")[0] + "_" + unknown.rpartition("_")[2]
    expired = await resources.deployment.create_key(seconds_to_live=-1)
    revoked = await resources.revoked_key()
    return {
        "no key": {},
        "unknown key": {"Authorization": f"Bearer {unknown}"},
        "unknown key in its own header": {"X-Api-Key": unknown},
        "wrong secret": {"Authorization": f"Bearer {wrong_secret}"},
        "revoked key": {"Authorization": f"Bearer {revoked}"},
        "revoked key in its own header": {"X-Api-Key": revoked},
        "expired key": {"Authorization": f"Bearer {expired}"},
        "another scheme": {"Authorization": f"Basic {good}"},
        "no scheme": {"Authorization": good},
        "scheme alone": {"Authorization": "Bearer"},
        "two words": {"Authorization": f"Bearer {good} {good}"},
        "not text": {"Authorization": b"Bearer \xff\xfe\x80"},
        "no token either": {"Authorization": "Bearer eyJhbGciOiJub25lIn0.e30."},
        "empty header": {"X-Api-Key": ""},
        "a bad one beside a good one": {"Authorization": f"Bearer {unknown}", "X-Api-Key": good},
    }


class Tally:
    """Counts the cases and keeps those that were answered otherwise than they should."""

    def __init__(self) -> None:
        self.cases = 0
        self.wrong: list[str] = []

    def expect(self, what: str, answer: httpx2.Response, status: int) -> None:
        self.cases += 1
        if answer.status_code != status:
            self.wrong.append(f"{what}: {answer.status_code}, not {status}: {answer.text[:300]}")

    def expect_same(self, what: str, one: httpx2.Response, other: httpx2.Response) -> None:
        self.cases += 1
        if essence(one) != essence(other):
            self.wrong.append(f"{what}: {essence(one)} is not {essence(other)}")

    def close(self) -> None:
        print(f"{self.cases} cases")
        assert self.cases > 0
        assert self.wrong == []


def essence(answer: httpx2.Response) -> tuple[int, list[tuple[str, str]], bytes]:
    """All of an answer but the time."""
    headers = sorted(
        (name.lower(), value)
        for name, value in answer.headers.multi_items()
        if name.lower() not in UNLIKE_BY_NATURE
    )
    return answer.status_code, headers, TIMESTAMP.sub(b'"timestamp":""', answer.content)


async def test_every_route_has_an_entry_and_every_entry_a_route(resources: TenantResources) -> None:
    served = {operation.name: operation for operation, _ in resources.routes()}
    assert set(served) == set(ENTRIES)
    for name, operation in served.items():
        entry = ENTRIES[name]
        if isinstance(operation.access, Scope):
            assert entry.scope is operation.access, name
        assert set(operation.parameter_names) <= set(entry.params(resources)), name


async def test_who_may_call_is_let_in(resources: TenantResources) -> None:
    tally = Tally()
    key = resources.deployment.key
    for target in targets(resources):
        for header in ({"Authorization": f"bearer {key}"}, {"X-Api-Key": key}):
            await resources.restore()
            answer = await target.ask(header)
            tally.expect(f"{target} with {[*header]}", answer, target.entry.own)
    tally.close()


async def test_a_credential_that_does_not_count_is_answered_alike_everywhere(
    resources: TenantResources,
) -> None:
    tally = Tally()
    refused: list[tuple[str, str, httpx2.Response]] = []
    credentials = await credentials_that_do_not_count(resources)
    for target in targets(resources):
        for kind, headers in credentials.items():
            answer = await target.ask(headers)
            if target.is_open:
                tally.expect(f"{target} with {kind}", answer, target.entry.own)
                continue
            tally.expect(f"{target} with {kind}", answer, 401)
            style = target.route.problem_format
            refused.append((style, f"{target} with {kind}", answer))
            for name in target.names:
                elsewhere = await target.ask(headers, **{name: "foreign"})
                refused.append((style, f"{target} with {kind}, foreign {name}", elsewhere))
    first = {style: answer for style, _, answer in reversed(refused)}
    assert {answer.headers["WWW-Authenticate"] for answer in first.values()} == {"Bearer"}
    for style, what, answer in refused:
        tally.expect_same(what, answer, first[style])
    tally.close()


async def test_a_key_without_the_scope_is_told_so_and_learns_nothing(
    resources: TenantResources,
) -> None:
    tally = Tally()
    lacking = {scope: bearer(await resources.key_without(scope)) for scope in Scope}
    for target in targets(resources):
        scope = target.entry.scope
        if scope is None:
            continue
        own = await target.ask(lacking[scope])
        tally.expect(f"{target} without {scope}", own, 403)
        for name in target.names:
            foreign = await target.ask(lacking[scope], **{name: "foreign"})
            absent = await target.ask(lacking[scope], **{name: "absent"})
            tally.expect_same(f"{target} without {scope}, {name}", foreign, absent)
    tally.close()


async def test_a_foreign_name_is_answered_as_one_that_never_was(resources: TenantResources) -> None:
    tally = Tally()
    own = bearer(resources.deployment.key)
    for target in targets(resources):
        for name in target.names:
            await resources.restore()
            status = target.entry.foreign.get(name, NOT_FOUND)
            foreign = await target.ask(own, **{name: "foreign"})
            absent = await target.ask(own, **{name: "absent"})
            tally.expect(f"{target}, foreign {name}", foreign, status)
            tally.expect(f"{target}, absent {name}", absent, status)
            if status == NOT_FOUND:
                tally.expect_same(f"{target}, {name}", foreign, absent)
    tally.close()


async def test_all_that_another_organisation_has_is_absent_together(
    resources: TenantResources,
) -> None:
    """Its organisation, its service and its id at once: a path that is right for somebody else."""
    tally = Tally()
    own = bearer(resources.deployment.key)
    for target in targets(resources):
        if "org" not in target.names:
            continue
        foreign = await target.ask(own, **dict.fromkeys(target.names, "foreign"))
        absent = await target.ask(own, **dict.fromkeys(target.names, "absent"))
        tally.expect(f"{target} of another organisation", foreign, NOT_FOUND)
        tally.expect_same(f"{target} of another organisation", foreign, absent)
    tally.close()


async def test_somebody_else_of_the_organisation_sees_what_is_everybodys(
    resources: TenantResources,
) -> None:
    tally = Tally()
    colleague = bearer(await resources.deployment.create_key(user="colleague"))
    for target in targets(resources):
        if target.is_open:
            continue
        await resources.restore()
        answer = await target.ask(colleague)
        tally.expect(f"{target} by a colleague", answer, target.entry.other_user)
        if target.entry.other_user == NOT_FOUND:
            absent = await target.ask(colleague, id="absent")
            tally.expect_same(f"{target} by a colleague", answer, absent)
    tally.close()


async def test_ids_in_a_query_are_told_apart_no_better(resources: TenantResources) -> None:
    [batch_status] = [each for each in targets(resources) if each.route.name == "batch_status"]
    colleague = bearer(await resources.deployment.create_key(user="colleague"))
    own = bearer(resources.deployment.key)
    job = resources.ended_job
    assert await found(batch_status, own) == ([job.own], [])
    assert await found(batch_status, own, job_ids="foreign") == ([], [job.foreign])
    assert await found(batch_status, own, job_ids="absent") == ([], [job.absent])
    assert await found(batch_status, own, service="foreign") == ([], [job.own])
    assert await found(batch_status, own, service="absent") == ([], [job.own])
    assert await found(batch_status, colleague) == ([], [job.own])


async def found(
    target: Target, headers: dict[str, str], **others: str
) -> tuple[list[str], list[str]]:
    answer = await target.ask(headers, **others)
    assert answer.status_code == 200
    body = answer.json()
    assert set(body) == {"items", "not_found"}
    return [job["id"] for job in body["items"]], body["not_found"]
