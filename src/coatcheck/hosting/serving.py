"""What a server makes of the products that are on: routes and webhook payloads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from coatcheck.core.webhook_payloads import Notices
from coatcheck.http.app import Surface
from coatcheck.http.context import Parts
from coatcheck.http.routes import usage_reports, webhook_messages
from coatcheck.http.routing import Operation
from coatcheck.product import Product, Products, ServerContext


def surfaces(products: Products) -> Sequence[Surface]:
    """The routes of all products, and those whose answers products make."""
    routed = [each for each in products if each.routes is not None]
    return [
        *(
            Surface(
                partial(_routes, each, products),
                {} if each.unrouted_formats is None else each.unrouted_formats(),
                each.request_headers,
                each.response_headers,
            )
            for each in routed
        ),
        Surface(partial(_webhook_messages, products)),
    ]


def _routes(product: Product, products: Products, parts: Parts) -> Sequence[Operation]:
    assert product.routes is not None
    return product.routes(ServerContext(parts, products))


def _webhook_messages(products: Products, parts: Parts) -> Sequence[Operation]:
    """Webhooks that are fetched instead of posted."""
    render = webhook_payloads(products, parts).body
    return webhook_messages.operations(parts.engine.webhooks, render, parts.draining, parts.gate)


def webhook_payloads(products: Products, parts: Parts) -> Notices:
    """What webhooks say: each product says it of its own jobs, and of what else it has."""
    payloads = {
        each.name: each.job_payload(parts) for each in products if each.job_payload is not None
    }
    others = next((each.name for each in products if each.adapts_other_jobs), None)
    kinds = {**usage_reports.renderers(parts.engine)}
    for each in products:
        if each.subject_payloads is not None:
            kinds |= each.subject_payloads(parts)
    return Notices(
        parts.engine,
        otherwise=None if others is None else payloads.get(others),
        services={
            service: payloads[each.name]
            for each in products
            if each.name in payloads
            for service in each.services
        },
        kinds=kinds,
    )
