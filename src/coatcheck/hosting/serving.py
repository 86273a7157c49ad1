"""Collects the routes and the webhook payloads of all products for a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from coatcheck.core.webhook_payloads import WebhookPayloads
from coatcheck.http.app import ProductRoutes
from coatcheck.http.context import ServerContext
from coatcheck.http.job_adapters import JobAdapter
from coatcheck.http.job_resource import JobResource
from coatcheck.http.routes import usage, webhook_deliveries
from coatcheck.http.routing import Route
from coatcheck.product import Product, ProductContext, Products


def product_routes(products: Products) -> Sequence[ProductRoutes]:
    """The routes of all products, and the route that serves their webhook payloads."""
    routed = [each for each in products if each.routes is not None]
    return [
        *(
            ProductRoutes(
                partial(_routes, each, products),
                {} if each.unrouted_formats is None else each.unrouted_formats(),
                each.request_headers,
                each.response_headers,
                None if each.jobs is None else each.name,
            )
            for each in routed
        ),
        ProductRoutes(partial(_webhook_messages, products)),
    ]


def _routes(product: Product, products: Products, server: ServerContext) -> Sequence[Route]:
    assert product.routes is not None
    _adapters(products, server)
    return product.routes(ProductContext(server, products))


def _webhook_messages(products: Products, server: ServerContext) -> Sequence[Route]:
    """The routes of webhooks that a receiver fetches instead of being posted to."""
    render = webhook_payloads(products, server).body
    return webhook_deliveries.message_routes(
        server.engine.webhooks, render, server.draining, server.gate
    )


def _adapters(products: Products, server: ServerContext) -> Mapping[str, JobAdapter]:
    """The jobs of each product, by its name."""
    if not server.adapters.all:
        server.adapters.use(server, products)
    return server.adapters.all


def webhook_payloads(products: Products, server: ServerContext) -> WebhookPayloads:
    """The webhook payloads: each product renders those of its jobs and of its other subjects."""
    payloads = {
        name: jobs.payload
        for name, jobs in _adapters(products, server).items()
        if isinstance(jobs, JobResource)
    }
    others = next((each.name for each in products if each.adapts_other_jobs), None)
    kinds = {**usage.renderers(server.engine)}
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
