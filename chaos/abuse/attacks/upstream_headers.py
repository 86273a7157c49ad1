"""An upstream whose headers target the proxies between Coatcheck and its callers."""

from __future__ import annotations

from typing import Final

import httpx2

from chaos.abuse.attack import Attack, Figures, at_least, at_most
from chaos.abuse.target import ATTACKER, Target
from tests.egress.upstream_server import plain, upstream_server

_ORDERS: Final = (
    *("X-Accel-Redirect", "X-Accel-Buffering", "X-Sendfile", "X-LIGHTTPD-send-file"),
    *("X-Reproxy-URL", "Cache-Control", "Vary", "Surrogate-Control", "Refresh", "Set-Cookie"),
    *("Access-Control-Allow-Origin", "Clear-Site-Data", "Service-Worker-Allowed", "SourceMap"),
)
_CANARY: Final = "/internal/secret.txt"
_SERVICE: Final = "orders"


async def _orders(target: Target) -> Figures:
    """How many of the headers reach a caller without a credential."""
    headers = (("Content-Type", "text/plain"), *((name, _CANARY) for name in _ORDERS))
    async with (
        upstream_server(plain(b"a page", headers=headers)) as upstream,
        target.client(ATTACKER) as attacker,
        httpx2.AsyncClient(base_url=target.url, trust_env=False, timeout=30) as anyone,
    ):
        endpoint = {
            "method": "GET",
            "path": "/page",
            "auth": "none",
            "target": {"type": "http", "url": upstream.url()},
        }
        registered = await attacker.put(
            f"/api/v1/orgs/{ATTACKER}/workspaces/default/hosted-services/{_SERVICE}",
            json={"versions": {"1": {"endpoints": [endpoint]}}},
        )
        registered.raise_for_status()
        answer = await anyone.get(f"/api/v1/orgs/{ATTACKER}/services/{_SERVICE}/page")
    passed = [name for name, value in answer.headers.multi_items() if _CANARY in value]
    return {"answered": int(answer.text == "a page"), "orders_passed_on": len(passed)}


def _complaints(figures: Figures) -> list[str]:
    return [*at_least(figures, "answered", 1), *at_most(figures, "orders_passed_on", 0)]


ATTACKS: Final = (
    Attack(
        name="upstream-headers",
        row=6,
        title=f"an upstream sends {len(_ORDERS)} headers that proxies and browsers act on",
        run=_orders,
        complaints=_complaints,
    ),
)
