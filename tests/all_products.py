"""All products that are installed, as a process has them that switches none off."""

from __future__ import annotations

from typing import Final

from coatcheck import hosting
from coatcheck.core.webhook_payloads import WebhookPayloads
from coatcheck.http.context import ServerContext
from coatcheck.maintenance import MaintenanceRunner
from coatcheck.product import Products
from coatcheck.settings import Settings

PRODUCTS: Final = Products.load()
SURFACES: Final = hosting.product_routes(PRODUCTS)
RESULT_STORES: Final = PRODUCTS.result_stores()
operators = PRODUCTS.operator_remotes


def payloads(server: ServerContext) -> WebhookPayloads:
    """What webhooks say."""
    return hosting.webhook_payloads(PRODUCTS, server)


def maintenance(settings: Settings) -> MaintenanceRunner:
    """The loops of a process."""
    return MaintenanceRunner(settings, PRODUCTS.maintenance())
