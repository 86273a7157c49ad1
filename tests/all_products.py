"""All products that are installed, as a process has them that switches none off."""

from __future__ import annotations

from typing import Final

from coatcheck.core.webhook_payloads import Notices
from coatcheck.hosting import serving
from coatcheck.http.context import Parts
from coatcheck.maintenance import Upkeep
from coatcheck.product import Products
from coatcheck.settings import Settings

PRODUCTS: Final = Products.load()
SURFACES: Final = serving.surfaces(PRODUCTS)
KEEPERS: Final = PRODUCTS.result_stores()
operators = PRODUCTS.operator_remotes


def notices(parts: Parts) -> Notices:
    """What webhooks say."""
    return serving.webhook_payloads(PRODUCTS, parts)


def maintenance(settings: Settings) -> Upkeep:
    """The loops of a process."""
    return Upkeep(settings, PRODUCTS.maintenance())
