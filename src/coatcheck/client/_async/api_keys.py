"""The client's API for API keys: create, list, revoke."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Final

from coatcheck.client._async.exchange import AsyncExchange
from coatcheck.client.addresses import Addresses, with_query
from coatcheck.client.answers import KeysetPage, read
from coatcheck.client.batch_request import given
from coatcheck.client.models import ApiKey, KeyRate, converted
from coatcheck.client.request_headers import JSON_HEADERS
from coatcheck.encoding import encode

PAGE_ITEMS: Final = 200


class AsyncApiKeys:
    """An organisation's API keys: ``client.api_keys``. Needs the scope ``admin``."""

    def __init__(self, exchange: AsyncExchange, addresses: Addresses) -> None:
        self._exchange = exchange
        self._addresses = addresses

    async def create(
        self,
        name: str = "",
        *,
        user: str | None = None,
        scopes: Iterable[str] | None = None,
        expires_in_seconds: int | None = None,
        rate_limit: KeyRate | None = None,
    ) -> ApiKey:
        """Create a key. The answer contains its ``key``, which is never shown again.

        Without ``user`` it acts for the caller; without ``scopes`` it may ``submit`` and ``read``.
        It cannot have a scope that the caller lacks. If the answer is lost, the request is not sent
        again: check with ``list_all`` whether the key exists.
        """
        body = given(
            name=name,
            user=user,
            scopes=None if scopes is None else sorted(set(scopes)),
            expires_in_seconds=expires_in_seconds,
            rate_limit=rate_limit,
        )
        response = await self._exchange.send(
            "POST",
            self._addresses.api_keys(),
            headers=JSON_HEADERS,
            content=encode(body),
            repeatable=False,
        )
        return read(response, ApiKey)

    async def list_all(self) -> AsyncIterator[ApiKey]:
        """All keys of the organisation, newest first, including revoked ones."""
        page_url: str | None = with_query(self._addresses.api_keys(), {"limit": PAGE_ITEMS})
        while page_url is not None:
            page = read(await self._exchange.send("GET", page_url), KeysetPage)
            for item in page.items:
                yield converted(item, ApiKey)
            page_url = with_query(page_url, {"cursor": page.next}) if page.next else None

    async def revoke(self, key: ApiKey | str) -> None:
        """Revoke a key for good. Idempotent. Raises NotFoundError."""
        key_id = key if isinstance(key, str) else key.id
        await self._exchange.send("DELETE", self._addresses.api_key(key_id))
