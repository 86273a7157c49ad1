"""The client's API keys: made, looked at, revoked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from coatcheck.client._sync.exchange import Exchange
from coatcheck.client.addresses import Addresses, with_query
from coatcheck.client.answers import KeysetPage, read
from coatcheck.client.api_key_body import ApiKey, KeyRate
from coatcheck.client.batch_body import converted
from coatcheck.client.batch_request import given
from coatcheck.client.request_headers import JSON_HEADERS
from coatcheck.encoding import encode

PAGE_ITEMS: Final = 200


class ApiKeys:
    """What a client can do with an organisation's API keys: ``client.api_keys``. It needs the scope
    ``admin``."""

    def __init__(self, exchange: Exchange, addresses: Addresses) -> None:
        self._exchange = exchange
        self._addresses = addresses

    def create(
        self,
        name: str = "",
        *,
        user: str | None = None,
        scopes: Iterable[str] | None = None,
        expires_in_seconds: int | None = None,
        rate_limit: KeyRate | None = None,
    ) -> ApiKey:
        """Make a key. Its ``key`` is in the answer, and never shown again.

        Without ``user`` it acts for the caller, without ``scopes`` it may ``submit`` and ``read``;
        it cannot have a scope that the caller lacks. A request whose answer was lost is not sent
        again: look with ``list_all`` whether it is there.
        """
        wanted = given(
            name=name,
            user=user,
            scopes=None if scopes is None else sorted(set(scopes)),
            expires_in_seconds=expires_in_seconds,
            rate_limit=rate_limit,
        )
        response = self._exchange.send(
            "POST",
            self._addresses.api_keys(),
            headers=JSON_HEADERS,
            content=encode(wanted),
            repeatable=False,
        )
        return read(response, ApiKey)

    def list_all(self) -> Iterator[ApiKey]:
        """All keys of the organisation, newest first, the revoked ones included."""
        page_url: str | None = with_query(self._addresses.api_keys(), {"limit": PAGE_ITEMS})
        while page_url is not None:
            page = read(self._exchange.send("GET", page_url), KeysetPage)
            for item in page.items:
                yield converted(item, ApiKey)
            page_url = with_query(page_url, {"cursor": page.next}) if page.next else None

    def revoke(self, key: ApiKey | str) -> None:
        """Revoke it for good. Once more is no error. Raises NotFoundError."""
        key_id = key if isinstance(key, str) else key.id
        self._exchange.send("DELETE", self._addresses.api_key(key_id))
