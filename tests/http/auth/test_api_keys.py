"""An API key opens what it should, for as long as it should, and nothing else."""

from __future__ import annotations

import asyncio
import hmac

import pytest

from coatcheck.core.queries import tenants
from coatcheck.db.connection import Connection
from coatcheck.domain import tenants as api_keys
from coatcheck.domain.errors import (
    DatabaseUnavailable,
    NotFound,
    OutcomeUnknown,
    SettingsInvalid,
    Unauthenticated,
)
from coatcheck.domain.tenants import (
    ALL_SCOPES,
    ANYONE,
    USER_SCOPES,
    OrgLimits,
    Principal,
    RateLimit,
    Scope,
)
from coatcheck.http.auth import authenticator
from coatcheck.http.auth.authenticator import looked_up
from coatcheck.settings import Settings
from tests.db.rows import connected
from tests.http.auth.replicas import ORG, PEPPER, Replica, new_key, new_org, replica, spelt
from tests.waiting import LIMIT_SECONDS


async def test_a_key_says_who_calls_and_what_they_may_do(one: Replica, line: Connection) -> None:
    limits = OrgLimits(RateLimit(1000, 60), backlog_max=50)
    await tenants.limit_org(line, ORG, limits)
    key = await new_key(line, user="grace", scopes={Scope.READ}, rate=RateLimit(10, 1))
    assert await one.authenticator.check(spelt(key)) == Principal(
        org=ORG,
        kind="key",
        owner="user:grace",
        scopes=frozenset({Scope.READ}),
        user="grace",
        key_id=key.key_id,
        key_rate=RateLimit(10, 1),
        org_rate=RateLimit(1000, 60),
        org_backlog_max=50,
    )


async def test_a_known_key_costs_no_statement(one: Replica, line: Connection) -> None:
    key = await new_key(line)
    assert one.authenticator.known(spelt(key)) is None
    principal = await one.authenticator.check(spelt(key))
    before = one.line.statements
    assert one.authenticator.known(spelt(key)) is principal
    assert one.line.statements == before


async def test_many_callers_at_once_share_statements(one: Replica, line: Connection) -> None:
    key, other = await new_key(line), await new_key(line)
    credentials = [spelt(key), spelt(other)] * 50
    found = await asyncio.gather(*map(one.authenticator.check, credentials))
    assert {principal.key_id for principal in found} == {key.key_id, other.key_id}
    assert one.line.statements <= 2


async def test_only_a_digest_under_the_pepper_is_stored(dsn: str, line: Connection) -> None:
    key = await new_key(line)
    async with connected(dsn) as connection:
        rows = await connection.fetch("SELECT k::text AS row, k.digest FROM api_keys AS k")
    assert key.secret.decode() not in rows[0]["row"]
    assert rows[0]["digest"] == hmac.digest(PEPPER.encode(), key.secret, "sha256")


async def test_a_server_with_another_pepper_accepts_no_key(dsn: str, line: Connection) -> None:
    key = await new_key(line)
    async with replica(Settings(database_url=dsn, key_pepper="x" * 32)) as stranger:
        assert not await stranger.accepts(spelt(key))


def test_a_server_without_a_pepper_does_not_start(dsn: str) -> None:
    with pytest.raises(SettingsInvalid, match="COATCHECK_KEY_PEPPER is not set"):
        Replica(Settings(database_url=dsn))


async def _refused_keys(line: Connection) -> dict[str, bytes]:
    good = await new_key(line)
    revoked = await new_key(line)
    await tenants.revoke(line, ORG, revoked.key_id)
    expired = await new_key(line, seconds_to_live=-1)
    stranger = api_keys.mint()
    return {
        "empty": b"",
        "no key at all": b"hello",
        "unknown": spelt(stranger),
        "wrong secret": f"cck_{good.key_id}_{stranger.secret.decode()}".encode(),
        "another id": f"cck_{stranger.key_id}_{good.secret.decode()}".encode(),
        "lower case id": f"cck_{good.key_id.lower()}_{good.secret.decode()}".encode(),
        "cut short": spelt(good)[:-1],
        "with a newline": spelt(good) + b"\n",
        "revoked": spelt(revoked),
        "expired": spelt(expired),
        "not UTF-8": spelt(good)[:-1] + b"\xff",
        "endless": b"cck_" + b"0" * 100_000,
    }


async def test_whatever_is_wrong_with_a_key_is_refused_alike(
    one: Replica, line: Connection
) -> None:
    refused = await _refused_keys(line)
    said = {}
    for what, credential in refused.items():
        with pytest.raises(Unauthenticated) as error:
            await one.authenticator.check(credential)
        said[what] = (type(error.value), error.value.args)
        assert one.authenticator.known(credential) is None
    assert said == dict.fromkeys(refused, (Unauthenticated, ()))


async def test_an_unknown_key_is_compared_as_a_wrong_one_is(
    one: Replica, line: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = await new_key(line)
    compared: list[tuple[int, int]] = []

    def compare(left: bytes, right: bytes) -> bool:
        compared.append((len(left), len(right)))
        return hmac.compare_digest(left, right)

    monkeypatch.setattr(
        authenticator, "hmac", type("", (), {"compare_digest": staticmethod(compare)})
    )
    wrong = f"cck_{good.key_id}_{api_keys.mint().secret.decode()}".encode()
    for credential in (wrong, spelt(api_keys.mint())):
        assert not await one.accepts(credential)
    assert compared == [(32, 32), (32, 32)]


async def test_a_revoked_key_fails_on_every_replica_once_they_have_heard(
    one: Replica, another: Replica, line: Connection
) -> None:
    key, bystander = spelt(await new_key(line)), spelt(await new_key(line))
    for each in (one, another):
        assert await each.accepts(key)
        assert await each.accepts(bystander)
        assert each.authenticator.known(key) is not None
    assert await tenants.revoke(line, ORG, key.split(b"_")[1].decode())
    async with asyncio.timeout(LIMIT_SECONDS):
        await one.news()
        await another.news()
    for each in (one, another):
        assert not await each.accepts(key)
        assert each.authenticator.known(bystander) is not None


async def test_a_look_up_that_a_revocation_overtakes_is_not_remembered(
    one: Replica, line: Connection
) -> None:
    """It read the key while that was valid; its answer came after the push had been heard."""
    key = await new_key(line)
    credential = spelt(key)
    answered = one.line.fetch

    async def slow_fetch(query: str, *arguments: object) -> list[object]:
        rows = await answered(query, *arguments)
        await tenants.revoke(line, ORG, key.key_id)
        await one.news()
        return rows

    one.line.fetch = slow_fetch  # type: ignore[method-assign]
    assert await one.accepts(credential)
    one.line.fetch = answered  # type: ignore[method-assign]
    assert one.authenticator.known(credential) is None
    assert not await one.accepts(credential)


async def test_who_cannot_hear_trusts_no_memory(one: Replica, line: Connection) -> None:
    key = await new_key(line)
    assert await one.accepts(spelt(key))
    await one.listener.stop()
    assert one.authenticator.known(spelt(key)) is None
    assert await one.accepts(spelt(key))
    await tenants.revoke(line, ORG, key.key_id)
    assert not await one.accepts(spelt(key))


async def test_what_was_found_while_deaf_is_not_remembered(one: Replica, line: Connection) -> None:
    key = await new_key(line)
    await one.listener.stop()
    assert await one.accepts(spelt(key))
    await tenants.revoke(line, ORG, key.key_id)
    one.is_deaf_and_trusting = True
    assert one.authenticator.known(spelt(key)) is None


async def test_a_gap_forgets_everything(one: Replica, line: Connection) -> None:
    key = await new_key(line)
    assert await one.accepts(spelt(key))
    assert await one.authenticator.anonymous(ORG)
    before = one.line.statements
    one.authenticator.forget_all()
    assert one.authenticator.known(spelt(key)) is None
    await one.authenticator.anonymous(ORG)
    assert one.line.statements == before + 1


async def test_a_key_is_remembered_no_longer_than_it_lives(one: Replica, line: Connection) -> None:
    one.now = 1000.0
    short, long = await new_key(line, seconds_to_live=60), await new_key(line)
    for key in (short, long):
        assert await one.accepts(spelt(key))
    one.now += 59
    assert one.authenticator.known(spelt(short)) is not None
    one.now += 2
    assert one.authenticator.known(spelt(short)) is None
    assert one.authenticator.known(spelt(long)) is not None
    one.now += 240
    assert one.authenticator.known(spelt(long)) is None


async def test_new_limits_of_an_organisation_hold_on_every_replica(
    one: Replica, line: Connection
) -> None:
    await new_org(line, "other")
    key, bystander = await new_key(line), await new_key(line, "other")
    assert (await one.authenticator.check(spelt(key))).org_rate is None
    await one.authenticator.check(spelt(bystander))
    assert (await one.authenticator.anonymous(ORG)).org_rate is None
    await tenants.limit_org(line, ORG, OrgLimits(RateLimit(5, 1), backlog_max=7))
    await one.news()
    assert one.authenticator.known(spelt(key)) is None
    assert one.authenticator.known(spelt(bystander)) is not None
    assert (await one.authenticator.check(spelt(key))).org_rate == RateLimit(5, 1)
    assert (await one.authenticator.anonymous(ORG)).org_backlog_max == 7


async def test_the_database_being_away_is_not_the_callers_fault(settings: Settings) -> None:
    away = Settings(
        database_url="postgresql://postgres@/postgres?host=/nowhere/at/all", key_pepper=PEPPER
    )
    deaf = Replica(away)
    with pytest.raises(DatabaseUnavailable):
        await deaf.authenticator.check(spelt(api_keys.mint()))
    with pytest.raises(DatabaseUnavailable):
        await deaf.authenticator.anonymous(ORG)
    with pytest.raises(Unauthenticated):
        await deaf.authenticator.check(b"hello")


async def test_a_look_up_whose_connection_broke_has_simply_not_been_made() -> None:
    async def cut_off() -> None:
        raise OutcomeUnknown("the connection broke")

    with pytest.raises(DatabaseUnavailable):
        await looked_up(cut_off())


async def test_a_known_key_outlives_a_database_that_cannot_be_asked(
    one: Replica, line: Connection
) -> None:
    key = await new_key(line)
    assert await one.accepts(spelt(key))

    async def broken(*_: object) -> list[object]:
        raise AssertionError("the database was asked")

    one.line.fetch = broken  # type: ignore[method-assign]
    assert await one.accepts(spelt(key))


async def test_without_a_credential_a_caller_may_submit_and_read_and_is_nobody(
    one: Replica, line: Connection
) -> None:
    await tenants.limit_org(line, ORG, OrgLimits(RateLimit(9, 9), 3))
    assert await one.authenticator.anonymous(ORG) == Principal(
        ORG,
        "anonymous",
        ANYONE,
        USER_SCOPES,
        org_rate=RateLimit(9, 9),
        org_backlog_max=3,
    )
    with pytest.raises(NotFound):
        await one.authenticator.anonymous("nobody")


async def test_a_key_of_all_scopes_has_them(one: Replica, line: Connection) -> None:
    key = await new_key(line, scopes=ALL_SCOPES)
    assert (await one.authenticator.check(spelt(key))).scopes == ALL_SCOPES
