"""What a server makes of the products that are on: routes and webhook payloads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from coatcheck.core.webhook_payloads import WebhookPayloads
from coatcheck.http.app import ProductRoutes
from coatcheck.http.context import ServerContext
from coatcheck.http.routes import usage_reports, webhook_messages
from coatcheck.http.routing import Route
from coatcheck.product import Product, ProductContext, Products


def surfaces(products: Products) -> Sequence[ProductRoutes]:
    """The routes of all products, and those whose answers products make."""
    routed = [each for each in products if each.routes is not None]
    return [
        *(
            ProductRoutes(
                partial(_routes, each, products),
                {} if each.unrouted_formats is None else each.unrouted_formats(),
                each.request_headers,
                each.response_headers,
            )
            for each in routed
        ),
        ProductRoutes(partial(_webhook_messages, products)),
    ]


def _routes(product: Product, products: Products, server: ServerContext) -> Sequence[Route]:
    assert product.routes is not None
    return product.routes(ProductContext(server, products))


def _webhook_messages(products: Products, server: ServerContext) -> Sequence[Route]:
    """Webhooks that are fetched instead of posted."""
    render = webhook_payloads(products, server).body
    return webhook_messages.routes(server.engine.webhooks, render, server.draining, server.gate)


def webhook_payloads(products: Products, server: ServerContext) -> WebhookPayloads:
    """What webhooks say: each product says it of its own jobs, and of what else it has."""
    payloads = {
        each.name: each.job_payload(server) for each in products if each.job_payload is not None
    }
    others = next((each.name for each in products if each.adapts_other_jobs), None)
    kinds = {**usage_reports.renderers(server.engine)}
    for each in products:
        if each.subject_payloads is not None:
            kinds |= each.subject_payloads(server)
    return WebhookPayloads(
        server.engine,
        otherwise=None if others is None else payloads.get(others),
        services={
            service: payloads[each.name]
            for each in products
            if each.name in payloads
            for service in each.services
        },
        kinds=kinds,
    )
