"""The webhook endpoints of a run, and the secrets that the receiver trusts."""

from __future__ import annotations

import random
from typing import Any, Final

from chaos.load.calls import Calls, Request
from chaos.load.product_load import LoadContext

_EVERYTHING: Final = "endpoint"
"""The part of the receiver's path that marks a registered endpoint."""


class Hooks:
    """Prepares the receiver before the first webhook."""

    def __init__(self, context: LoadContext) -> None:
        self._context = context
        self._calls = Calls(
            context.servers, context.history, "webhooks", random.Random(f"hooks {context.seed}")
        )

    async def prepare(self) -> None:
        """Fetch every organisation's secret, and register an endpoint for the last one."""
        for org in self._context.orgs:
            self._trust(org, (await self._read(org, "/secret"))["secret"])
        await self._register(self._context.orgs[-1])

    async def _register(self, org: str) -> None:
        url = f"{self._context.world.receiver_url}/{org}/{_EVERYTHING}/0"
        if not any(each["url"] == url for each in await self._endpoints(org)):
            answer = await self._calls.settled(
                Request(
                    operation="register",
                    method="POST",
                    path=f"{_base(org)}/endpoints",
                    org=org,
                    json={"url": url, "events": ["*", "task.failed"]},
                )
            )
            assert answer.ok, answer.body
        # After a lost answer it may be registered twice: each endpoint has its own secret.
        for endpoint in await self._endpoints(org):
            self._trust(
                org, (await self._read(org, f"/endpoints/{endpoint['id']}/secret"))["secret"]
            )

    async def _endpoints(self, org: str) -> list[Any]:
        items: list[Any] = (await self._read(org, "/endpoints"))["items"]
        return items

    async def _read(self, org: str, path: str) -> Any:
        answer = await self._calls.surely_read(org, _base(org) + path)
        assert answer.status == 200, answer.body
        return answer.json

    def _trust(self, org: str, secret: str) -> None:
        self._context.world.receiver.trust(org, secret)


def _base(org: str) -> str:
    return f"/api/v1/orgs/{org}/webhooks"
