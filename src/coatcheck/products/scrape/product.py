"""Registers the scrape product: a service that fetches pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from coatcheck.product import Product, WorkerContext

if TYPE_CHECKING:
    from coatcheck.service import Service


@asynccontextmanager
async def _call_services(context: WorkerContext) -> AsyncIterator[Sequence[Service]]:
    from coatcheck.products.scrape.executor import ScrapeExecutor

    async with ScrapeExecutor(context.settings) as scrape:
        yield [scrape.service]


PRODUCT = Product(name="scrape", services=("scrape",), call_services=_call_services)
