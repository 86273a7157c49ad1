"""Registers the console: all jobs of an organisation, whichever product they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from coatcheck.product import Product, ProductContext

if TYPE_CHECKING:
    from coatcheck.http.routing import Route


def _routes(context: ProductContext) -> Sequence[Route]:
    from coatcheck.products.console import routes as product_routes

    return product_routes.routes(context)


PRODUCT = Product(name="console", routes=_routes)
