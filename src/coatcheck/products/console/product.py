"""The console: all jobs of an organisation, whichever product they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from coatcheck.product import Product, ServerContext

if TYPE_CHECKING:
    from coatcheck.http.routing import Operation


def _routes(context: ServerContext) -> Sequence[Operation]:
    from coatcheck.products.console import routes as surface

    return surface.operations(context)


PRODUCT = Product(name="console", routes=_routes)
