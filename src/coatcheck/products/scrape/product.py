"""Registers the scrape product: a service that fetches pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from coatcheck.product import Product

if TYPE_CHECKING:
    from coatcheck.service import Service
    from coatcheck.settings import Settings


@asynccontextmanager
async def _call_services(settings: Settings) -> AsyncIterator[Sequence[Service]]:
    from coatcheck.products.scrape.executor import ScrapeExecutor

    async with ScrapeExecutor(settings) as scrape:
        yield [scrape.service]


PRODUCT = Product(name="scrape", services=("scrape",), call_services=_call_services)
