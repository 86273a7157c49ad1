"""Says whether a webhook is Coatcheck's, by the rules of Standard Webhooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec
from standardwebhooks import Webhook, WebhookVerificationError

from coatcheck.client.errors import InvalidWebhook


class WebhookEvent(msgspec.Struct, frozen=True):
    """What a webhook tells: that something of this ``type`` happened at ``timestamp``.

    ``id`` is the same at every try: keep those that you have seen, and pass over what you know.
    ``data`` is what it happened to, as its surface shows it when the webhook is sent; where the
    body has no ``data``, as for the states of chats, it is the whole body. ``state`` and
    ``previous_state`` are there for jobs: what they went to, and from.
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
    """What a webhook tells, if it was signed with this secret, or one of several.

    ``body`` is the request's, to the byte, and ``headers`` are all of its headers or those that
    begin with ``webhook-``. Raises InvalidWebhook if it was signed otherwise, was changed on its
    way, or was signed more than five minutes ago or from now.
    """
    secrets = [secret] if isinstance(secret, str) else list(secret)
    given = {name.lower(): value for name, value in headers.items()}
    problem = "there is no secret to verify it with"
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
        except ValueError:  # a signature or a body that is none at all
            problem = "Invalid Signature Headers"
    raise InvalidWebhook(problem)


def _event(body: bytes, message: str) -> WebhookEvent:
    try:
        read = msgspec.json.decode(body, type=_Body)
        data = msgspec.json.decode(body) if read.data is None else read.data
    except msgspec.DecodeError as error:
        raise InvalidWebhook("the signature is right, and the body shows no event") from error
    return WebhookEvent(message, read.type, read.timestamp, data, read.state, read.previous_state)
