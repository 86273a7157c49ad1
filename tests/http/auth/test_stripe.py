"""Stripe's events set the plan of an organisation: signed, in any order, any number of times."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import httpx2
import pytest

from coatcheck.db.connection import Connection
from coatcheck.db.notifications import KEYS, NotificationListener
from coatcheck.domain.errors import DatabaseUnavailable, SubscriptionInactive
from coatcheck.domain.limits import STRIPE_EVENT_BYTES_MAX
from coatcheck.http.billing import TOLERANCE_SECONDS, Subscriptions
from coatcheck.settings import Settings
from tests.db.rows import connected
from tests.http.auth.replicas import CountedLine, new_org
from tests.http.auth.served import served
from tests.http.auth.stripe_events import (
    BEGAN,
    PATH,
    SECRET,
    checkout,
    event,
    send,
    signature,
    subscription,
    told,
)


@pytest.fixture
def billing(settings: Settings) -> Settings:
    return replace(settings, stripe_webhook_secret=SECRET)


@pytest.fixture
async def client(billing: Settings, line: Connection) -> AsyncIterator[httpx2.AsyncClient]:
    async with served(billing) as (connected_client, _):
        yield connected_client


async def plan(line: Connection, org: str = "acme") -> str | None:
    rows = await line.fetch("SELECT subscription FROM orgs WHERE org_id = $1", org)
    return rows[0][0] if rows else None


async def test_a_checkout_links_the_customer_and_events_then_set_the_plan(
    client: httpx2.AsyncClient, line: Connection
) -> None:
    assert await told(client, checkout()) == "applied"
    assert await plan(line) == "active"
    for number, status in enumerate(("past_due", "unpaid", "active", "paused"), 1):
        assert await told(client, subscription(status, at=BEGAN + number)) == "applied"
        assert await plan(line) == status
    assert await told(client, subscription("canceled", kind="deleted", at=BEGAN + 9)) == "applied"
    assert await plan(line) == "canceled"


@pytest.mark.parametrize(
    "body",
    [
        checkout(client_reference_id=None, metadata={"org_id": "acme"}),
        checkout(customer={"id": "cus_1", "object": "customer"}, subscription={"id": "sub_1"}),
        checkout(payment_status="no_payment_required"),
        subscription("active", kind="created", metadata={"org_id": "acme"}),
    ],
    ids=["metadata", "expanded", "nothing to pay", "subscription's metadata"],
)
async def test_an_organisation_is_named_in_several_ways(
    client: httpx2.AsyncClient, line: Connection, body: bytes
) -> None:
    assert await told(client, body) == "applied"
    assert await told(client, subscription("unpaid", at=BEGAN + 1)) == "applied"
    assert await plan(line) == "unpaid"


async def test_a_checkout_that_is_not_paid_yet_only_links(
    client: httpx2.AsyncClient, line: Connection
) -> None:
    await line.fetch("UPDATE orgs SET subscription = 'canceled'")
    assert await told(client, checkout(payment_status="unpaid")) == "applied"
    assert await plan(line) == "canceled"
    assert await told(client, subscription("active", at=BEGAN + 1)) == "applied"
    assert await plan(line) == "active"


async def test_an_event_that_comes_again_changes_nothing(
    client: httpx2.AsyncClient, line: Connection
) -> None:
    await told(client, checkout())
    again = subscription("unpaid", at=BEGAN + 1, event_id="evt_again")
    assert await told(client, again) == "applied"
    await told(client, subscription("active", at=BEGAN + 1))
    assert await told(client, again) == "repeated"
    assert await plan(line) == "active"


async def test_one_event_sent_many_times_at_once_is_applied_once(
    client: httpx2.AsyncClient, line: Connection
) -> None:
    await told(client, checkout())
    body = subscription("unpaid", at=BEGAN + 1)
    outcomes = await asyncio.gather(*(told(client, body) for _ in range(10)))
    assert sorted(outcomes) == ["applied"] + ["repeated"] * 9


async def test_events_may_come_in_any_order(client: httpx2.AsyncClient, line: Connection) -> None:
    """Some of them bear the same second."""
    for number, order in enumerate(itertools.permutations(range(4))):
        org = f"org{number}"
        options = {
            "id": f"sub_{org}",
            "customer": f"cus_{org}",
            "metadata": {"org_id": org},
        }
        happened = [
            subscription("incomplete", kind="created", at=BEGAN, **options),
            subscription("active", at=BEGAN, **options),
            subscription("past_due", at=BEGAN + 1, **options),
            subscription("canceled", kind="deleted", at=BEGAN + 1, **options),
        ]
        for at in order:
            await told(client, happened[at])
        assert await plan(line, org) == "canceled", order


async def test_an_old_subscription_that_ends_does_not_end_the_new_one(
    client: httpx2.AsyncClient, line: Connection
) -> None:
    await told(client, checkout())
    await told(client, subscription("active", kind="created", id="sub_2", at=BEGAN + 5))
    await told(client, subscription("canceled", kind="deleted", id="sub_1", at=BEGAN + 9))
    assert await plan(line) == "active"
    await told(client, subscription("canceled", kind="deleted", id="sub_2", at=BEGAN + 10))
    assert await plan(line) == "canceled"


async def test_a_customer_that_nobody_has_is_answered_and_left_alone(
    client: httpx2.AsyncClient, line: Connection
) -> None:
    assert await told(client, subscription("canceled", customer="cus_nobody")) == "unknown"
    assert await plan(line) == "active"


@pytest.mark.parametrize("kind", ["invoice.paid", "customer.created", "customer.subscription.x"])
async def test_other_events_are_answered_and_ignored(
    client: httpx2.AsyncClient, line: Connection, kind: str
) -> None:
    assert await told(client, event(kind, {"anything": ["at", "all"]})) == "ignored"


async def test_a_buyers_own_words_do_not_take_an_organisation_over(
    client: httpx2.AsyncClient, line: Connection
) -> None:
    """A payment link lets whoever opens it set the reference; only our own server sets metadata."""
    await told(client, checkout())
    await told(client, checkout(customer="cus_mallory", subscription="sub_mallory"))
    ended = subscription(
        "canceled", kind="deleted", id="sub_mallory", customer="cus_mallory", at=BEGAN + 5
    )
    assert await told(client, ended) == "applied"
    assert await plan(line) == "active"
    await told(client, subscription("unpaid", at=BEGAN + 6))
    assert await plan(line) == "unpaid"
    # The organisation's customer is who it was: it can subscribe anew.
    anew = subscription("active", kind="created", id="sub_2", at=BEGAN + 7)
    assert await told(client, anew) == "applied"
    assert await plan(line) == "active"


async def test_our_own_words_give_an_organisation_another_customer(
    client: httpx2.AsyncClient, line: Connection
) -> None:
    await told(client, checkout())
    named = {"org_id": "acme"}
    await told(client, checkout(customer="cus_2", subscription="sub_2", metadata=named))
    later = subscription("active", kind="created", id="sub_3", customer="cus_2", at=BEGAN + 1)
    assert await told(client, later) == "applied"
    # What the customer before it has is still heard of.
    assert await told(client, subscription("unpaid", at=BEGAN + 2)) == "applied"
    assert await plan(line) == "active"


async def test_an_organisation_that_only_tokens_knew_gets_a_row_when_it_pays(
    client: httpx2.AsyncClient, line: Connection
) -> None:
    assert await told(client, checkout(client_reference_id="newcomer")) == "applied"
    assert await plan(line, "newcomer") == "active"
    unpaid = checkout(client_reference_id="idler", payment_status="unpaid", customer="cus_2")
    assert await told(client, unpaid) == "applied"
    assert await plan(line, "idler") == "incomplete"
    nobody = checkout(client_reference_id="../acme", customer="cus_3", subscription="sub_3")
    assert await told(client, nobody) == "unknown"


GOOD = subscription("active")


# Made when the test runs: a signature made when the tests are collected could be too old by then.
NOT_SIGNED: dict[str, Callable[[], str]] = {
    "nothing": lambda: "",
    "no signature": lambda: f"t={int(time.time())}",
    "no time": lambda: signature(GOOD).split(",")[1],
    "two times": lambda: f"t=1,{signature(GOOD)}",
    "another secret": lambda: signature(GOOD, "whsec_other"),
    "another body": lambda: signature(GOOD + b" "),
    "another time": lambda: signature(GOOD).replace("t=", "t=1"),
    "only v0": lambda: signature(GOOD).replace("v1=", "v0="),
    "too old": lambda: signature(GOOD, at=time.time() - TOLERANCE_SECONDS - 60),
    "from the future": lambda: signature(GOOD, at=time.time() + TOLERANCE_SECONDS + 60),
    "not hex": lambda: f"t={int(time.time())},v1=ÿÿ",
    "nonsense": lambda: ",,=,==",
}


@pytest.mark.parametrize("what", NOT_SIGNED)
async def test_what_stripe_did_not_sign_is_refused(
    client: httpx2.AsyncClient, line: Connection, what: str
) -> None:
    await told(client, checkout())
    header = NOT_SIGNED[what]().encode("latin-1")
    answer = await client.post(PATH, content=GOOD, headers=[(b"stripe-signature", header)])
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_parameter")
    assert answer.json()["details"][0]["field"] == "Stripe-Signature"


async def test_one_good_signature_among_several_is_enough(
    client: httpx2.AsyncClient, line: Connection
) -> None:
    """While the secret is rolled, Stripe signs with both."""
    body = checkout()
    when, good = signature(body).split(",")
    answer = await send(client, body, **{"Stripe-Signature": f"{when},v1={'0' * 64},{good},v0=x"})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"id": "evt_1"}',
        event("customer.subscription.updated", {"id": "sub_1"}),
        event("customer.subscription.updated", {"id": "", "customer": "c", "status": "active"}),
        event("checkout.session.completed", {"customer": 7}),
        subscription("active", at=10**18),
        subscription("active\0"),
    ],
)
async def test_what_is_signed_and_yet_no_event_is_refused(
    client: httpx2.AsyncClient, line: Connection, body: bytes
) -> None:
    answer = await send(client, body)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_body")


async def test_a_body_that_is_too_large_is_refused(
    client: httpx2.AsyncClient, line: Connection
) -> None:
    answer = await send(client, b" " * (STRIPE_EVENT_BYTES_MAX + 1))
    assert answer.status_code == 413


async def test_with_billing_off_nothing_is_served_there(
    settings: Settings, line: Connection
) -> None:
    async with served(settings) as (client, _):
        answer = await send(client, checkout())
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_events_that_are_long_past_are_forgotten(
    client: httpx2.AsyncClient, line: Connection, dsn: str
) -> None:
    await told(client, checkout())
    async with connected(dsn) as connection:
        await connection.execute(
            "UPDATE stripe_events SET received_at = now() - interval '31 days'"
        )
        await told(client, subscription("active"))
        assert await connection.fetchval("SELECT count(*) FROM stripe_events") == 1


@pytest.mark.parametrize(
    ("status", "active"),
    [
        ("active", True),
        ("trialing", True),
        ("past_due", True),
        ("unpaid", False),
        ("canceled", False),
        ("incomplete", False),
        ("incomplete_expired", False),
        ("paused", False),
        ("anything new", False),
    ],
)
async def test_an_organisation_may_hand_in_work_while_its_plan_is_active(
    billing: Settings, line: Connection, status: str, active: bool
) -> None:
    await line.fetch("UPDATE orgs SET subscription = $1", status)
    subscriptions = Subscriptions(billing, line)
    assert subscriptions.check_now("acme") is None
    if active:
        await subscriptions.check("acme")
    else:
        with pytest.raises(SubscriptionInactive):
            await subscriptions.check("acme")
    assert subscriptions.check_now("acme") is active


async def test_an_organisation_without_a_row_has_no_plan(
    billing: Settings, line: Connection
) -> None:
    with pytest.raises(SubscriptionInactive):
        await Subscriptions(billing, line).check("nowhere")


async def test_with_billing_off_every_organisation_is_active(settings: Settings) -> None:
    """And the database is not asked: there is none on that line."""
    subscriptions = Subscriptions(settings, Connection("postgresql://nowhere", name="none"))
    assert subscriptions.check_now("nowhere") is True
    await subscriptions.check("nowhere")


async def test_a_plan_is_remembered_for_half_a_minute(billing: Settings, line: Connection) -> None:
    counted = CountedLine(billing.database_url, name="counted")
    now = 1000.0
    subscriptions = Subscriptions(billing, counted, clock=lambda: now)
    await subscriptions.check("acme")
    await subscriptions.check("acme")
    assert counted.statements == 1
    now += 29
    assert subscriptions.check_now("acme") is True
    now += 2
    assert subscriptions.check_now("acme") is None
    await counted.close()


async def test_a_change_is_told_to_every_replica_at_once(
    client: httpx2.AsyncClient, billing: Settings, line: Connection
) -> None:
    await new_org(line, "other")
    subscriptions = Subscriptions(billing, line)
    heard = asyncio.Event()

    def hear(payload: str) -> None:
        subscriptions.on_keys_changed(payload)
        heard.set()

    listener = NotificationListener(billing.database_url).subscribe(
        {KEYS: hear}, on_gap=subscriptions.forget_all
    )
    await listener.start()
    await subscriptions.check("acme")
    await subscriptions.check("other")
    await told(client, checkout())
    await told(client, subscription("canceled", kind="deleted", at=BEGAN + 1))
    await heard.wait()
    while subscriptions.check_now("acme") is not None:
        heard.clear()
        await heard.wait()
    with pytest.raises(SubscriptionInactive):
        await subscriptions.check("acme")
    assert subscriptions.check_now("other") is True
    await listener.stop()


async def test_the_database_being_away_is_said(billing: Settings) -> None:
    away = Connection("postgresql://postgres@/postgres?host=/nowhere/at/all", name="away")
    with pytest.raises(DatabaseUnavailable):
        await Subscriptions(billing, away).check("acme")
