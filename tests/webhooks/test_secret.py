"""What signs webhooks: an organisation's own secret, and for a day the one before."""

from __future__ import annotations

import pytest
from standardwebhooks import WebhookVerificationError

from coatcheck.core.webhooks import WebhookSecrets
from coatcheck.domain.tenants import ALL_SCOPES, Scope
from coatcheck.domain.webhooks import PREVIOUS_SECRET_SECONDS
from tests.deployment import PEPPER, bearer
from tests.egress.upstream_server import UpstreamServer
from tests.webhooks.webhook_deliveries import ORG, WebhookDeliveries, verified

SECRET = f"/api/v1/orgs/{ORG}/webhooks/secret"


async def rotated(hooks: WebhookDeliveries) -> dict[str, str]:
    answer = await hooks.deployment.http.post(f"{SECRET}/rotate")
    assert answer.status_code == 200, answer.text
    shown: dict[str, str] = answer.json()
    return shown


async def a_message(hooks: WebhookDeliveries, receiver: UpstreamServer, org: str = ORG) -> None:
    receiver.requests.clear()
    await hooks.put(receiver.url(), org=org)
    async with hooks.deliverer() as deliverer:
        await hooks.deliver_due(deliverer)
    assert len(receiver.requests) == 1


async def test_the_secret_is_shown_to_admins_and_stays_the_same(hooks: WebhookDeliveries) -> None:
    first = await hooks.secret()
    assert first == await hooks.secret()
    assert first["secret"].startswith("whsec_")
    assert set(first) == {"secret"}
    member = await hooks.deployment.create_key(scopes=ALL_SCOPES - {Scope.ADMIN})
    for method, path in (("GET", SECRET), ("POST", f"{SECRET}/rotate")):
        refused = await hooks.deployment.http.request(method, path, headers=bearer(member))
        assert refused.status_code == 403
    answer = await hooks.deployment.http.get(SECRET)
    assert answer.headers["Cache-Control"] == "no-store"


async def test_after_a_rotation_both_secrets_verify_and_no_other(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    old = (await hooks.secret())["secret"]
    shown = await rotated(hooks)
    assert shown["previous"] == old
    assert shown["secret"] != old
    assert shown == await hooks.secret()
    await a_message(hooks, receiver)
    (request,) = receiver.requests
    assert len((request.header("webhook-signature") or "").split(" ")) == 2
    assert verified(request, shown["secret"]) == verified(request, old)
    with pytest.raises(WebhookVerificationError):
        verified(request, WebhookSecrets(PEPPER).text(ORG, 3))


async def test_the_one_before_signs_for_a_day(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    old = (await hooks.secret())["secret"]
    new = (await rotated(hooks))["secret"]
    await hooks.sql.execute(
        "UPDATE webhook_secrets SET rotated_at = now() - $1 * interval '1 second'",
        float(PREVIOUS_SECRET_SECONDS),
    )
    assert await hooks.secret() == {"secret": new}
    await a_message(hooks, receiver)
    (request,) = receiver.requests
    assert verified(request, new)
    with pytest.raises(WebhookVerificationError):
        verified(request, old)


async def test_two_rotations_in_a_row_leave_the_first_behind(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    first = (await hooks.secret())["secret"]
    second = (await rotated(hooks))["secret"]
    third = await rotated(hooks)
    assert third["previous"] == second
    await a_message(hooks, receiver)
    (request,) = receiver.requests
    assert verified(request, second) == verified(request, third["secret"])
    with pytest.raises(WebhookVerificationError):
        verified(request, first)


async def test_a_message_that_was_changed_or_is_another_organisation_s_does_not_verify(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    mine = (await hooks.secret())["secret"]
    await a_message(hooks, receiver, org="another")
    (request,) = receiver.requests
    with pytest.raises(WebhookVerificationError):
        verified(request, mine)
    theirs = WebhookSecrets(PEPPER).text("another", 1)
    assert verified(request, theirs)
    forged = type(request)(request.method, request.target, request.headers, request.body + b" ")
    with pytest.raises(WebhookVerificationError):
        verified(forged, theirs)


def test_secrets_differ_by_pepper_organisation_and_generation() -> None:
    texts = {
        WebhookSecrets(pepper).text(org, generation)
        for pepper in ("p" * 32, "q" * 32)
        for org in ("a", "b", "1\0a")
        for generation in (1, 2, 11)
    }
    assert len(texts) == 18
