"""Verifies webhooks by the Standard Webhooks rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec
from standardwebhooks import Webhook, WebhookVerificationError

from coatcheck.client.errors import InvalidWebhook


class WebhookEvent(msgspec.Struct, frozen=True):
    """The event of a webhook: something of this ``type`` happened at ``timestamp``.

    ``id`` is the same at every try: remember the ids you have seen, and ignore repetitions.
    ``data`` is the object concerned, as its API shows it when the webhook is sent; if the body has
    no ``data``, as for the states of chats, it is the whole body. Jobs have ``state`` and
    ``previous_state``: the new and the old state.
    """

    id: str
    type: str
    timestamp: datetime
    data: dict[str, Any]
    state: str | None = None
    previous_state: str | None = None


class _Body(msgspec.Struct, frozen=True):
    type: str
    timestamp: datetime
    data: dict[str, Any] | None = None
    state: str | None = None
    previous_state: str | None = None


def verify_webhook(
    body: bytes, headers: Mapping[str, str], secret: str | Iterable[str]
) -> WebhookEvent:
    """The event of a webhook, if it was signed with this secret, or with one of several.

    ``body`` is the request's exact body, and ``headers`` are all of its headers or those that begin
    with ``webhook-``. Raises InvalidWebhook if it was signed otherwise, was changed in transit, or
    was signed more than five minutes ago or ahead.
    """
    secrets = [secret] if isinstance(secret, str) else list(secret)
    given = {name.lower(): value for name, value in headers.items()}
    problem = "no secret to verify it with"
    for each in secrets:
        try:
            webhook = Webhook(each)
        except Exception as error:
            raise ValueError("secret must be whsec_ and base64, as Coatcheck shows it") from error
        try:
            webhook.verify(body, given, json_parse=False)
            return _event(body, given["webhook-id"])
        except WebhookVerificationError as error:
            problem = str(error)
        except ValueError:  # the signature or the body is malformed
            problem = "Invalid Signature Headers"
    raise InvalidWebhook(problem)


def _event(body: bytes, message: str) -> WebhookEvent:
    try:
        read = msgspec.json.decode(body, type=_Body)
        data = msgspec.json.decode(body) if read.data is None else read.data
    except msgspec.DecodeError as error:
        raise InvalidWebhook("the signature is valid, but the body contains no event") from error
    return WebhookEvent(message, read.type, read.timestamp, data, read.state, read.previous_state)
