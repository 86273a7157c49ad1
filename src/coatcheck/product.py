"""The plug-in interface of products: a ``Product`` registers everything that one adds.

A product adds HTTP routes, workers, maintenance loops, webhook payloads and more. Its package has a
module that makes a ``Product`` and nothing else, and an entry point names that module
(``installed.py``). Every process in which the product is on imports the module, so the module
imports the rest of its package only inside the functions that it registers:

    def _routes(context: ProductContext) -> Sequence[Route]:
        from my_package import routes

        return routes.routes(context.server)

    PRODUCT = Product(name="echo", services=("echo",), routes=_routes)

No product imports another one. ``COATCHECK_PRODUCTS`` says which are on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from coatcheck.domain.errors import SettingsInvalid
from coatcheck.installed import chosen_products, load_products, reserved_services

if TYPE_CHECKING:
    from coatcheck.core import Engine
    from coatcheck.core.explain import JobExplainer
    from coatcheck.core.remote.result_store import ResultStore
    from coatcheck.core.webhook_payloads import SubjectRenderer
    from coatcheck.db.database import Database
    from coatcheck.domain.remote_work import OperatorRemote
    from coatcheck.domain.webhooks import SubjectKind
    from coatcheck.http.context import ServerContext
    from coatcheck.http.job_adapters import JobAdapter
    from coatcheck.http.problem_formats import ProblemFormat
    from coatcheck.http.routing import Route
    from coatcheck.maintenance.loop import Loop
    from coatcheck.maintenance.runner import MaintenanceContext
    from coatcheck.service import Service
    from coatcheck.settings import Settings
    from coatcheck.worker.worker import Worker


class Verdict(StrEnum):
    """The result of one check of ``coatcheck doctor``."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line that ``coatcheck doctor`` prints: the check, its result and a hint."""

    subject: str
    verdict: Verdict
    found: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class ProductContext:
    """The argument of ``Product.routes``: the server's parts, and the products that are on."""

    server: ServerContext
    products: Products


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """The argument of ``Product.workers`` and ``Product.call_services``. All workers of a process
    share the ``database``: it has all connections."""

    settings: Settings
    database: Database


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """Everything that a product adds. Only the name is required.

    ``services`` are names of services that only this product may use. Their jobs are the product's
    jobs. Each name is an entry point of ``coatcheck.services`` as well.
    """

    name: str
    services: tuple[str, ...] = ()

    routes: Callable[[ProductContext], Sequence[Route]] | None = None
    """Its HTTP API."""
    unrouted_formats: Callable[[], Mapping[str, ProblemFormat]] | None = None
    """The format of errors at paths that have no route, by path prefix."""
    request_headers: tuple[str, ...] = ()
    """Headers that its routes read. Pages of other origins may send them (CORS)."""
    response_headers: tuple[str, ...] = ()
    """Headers that its routes answer with. Pages of other origins may read them (CORS)."""
    jobs: Callable[[ServerContext], JobAdapter] | None = None
    """Its jobs, mostly a ``JobResource``. Shows, cancels and retries them where jobs of all
    products are listed: the console. Makes their webhook payloads, if it is a resource."""
    subject_payloads: Callable[[ServerContext], Mapping[SubjectKind, SubjectRenderer]] | None = None
    """Makes the webhook payloads of subjects that are not jobs, by their kind."""
    adapts_other_jobs: bool = False
    """Whether its adapter and its payload also serve jobs of services that belong to no product:
    those that users declare or register. At most one product may say so."""
    adapts_grouped_jobs: bool = False
    """Whether its adapter also serves jobs of any service that belong to a run. At most one product
    may say so."""

    call_services: (
        Callable[[WorkerContext], AbstractAsyncContextManager[Sequence[Service]]] | None
    ) = None
    """Services whose jobs mostly wait for a network call. One worker runs those of all products,
    with separate slots (COATCHECK_CALLS_CONCURRENCY). The context is open while it runs."""
    workers: Callable[[WorkerContext], AbstractAsyncContextManager[Sequence[Worker]]] | None = None
    """Additional workers in each worker process. The context is open while they run. It may give
    none if there is nothing to run with these settings."""
    maintenance: Callable[[MaintenanceContext], Sequence[Loop]] | None = None
    """Its maintenance loops, which every server and worker runs."""

    result_stores: Callable[[], Mapping[str, ResultStore]] | None = None
    """Store the results of its jobs that remotes run, by endpoint."""
    operator_remotes: Callable[[Settings], Mapping[str, OperatorRemote]] | None = None
    """The operator's remotes, by the name that its jobs use for them. Raises SettingsInvalid for
    one that no adapter can use."""
    explainer: Callable[[Engine], JobExplainer] | None = None
    """Explains why its jobs wait, where only the product knows."""
    checks: Callable[[Settings], Awaitable[Sequence[Finding]]] | None = None
    """The checks that ``coatcheck doctor`` makes for it."""


@dataclass(frozen=True, slots=True)
class Products:
    """The products that are on in this process, in alphabetical order."""

    all: tuple[Product, ...]

    @classmethod
    def load(cls, requested: Sequence[str] = ()) -> Products:
        """Import the products of these names, or all installed products if no name is given.

        Raises SettingsInvalid for a product that is not installed, cannot be imported, or does not
        fit its entry points; and for two products that cannot be on together.
        """
        names = chosen_products(requested)
        loaded = [_checked(*each) for each in zip(names, load_products(names), strict=True)]
        for claim in ("adapts_other_jobs", "adapts_grouped_jobs"):
            claimants = [each.name for each in loaded if getattr(each, claim)]
            if len(claimants) > 1:
                raise SettingsInvalid(
                    f"the products {' and '.join(claimants)} cannot be on together, because only "
                    f"one may have {claim}: choose with COATCHECK_PRODUCTS"
                )
        return cls(tuple(loaded))

    def __iter__(self) -> Iterator[Product]:
        return iter(self.all)

    def result_stores(self) -> Mapping[str, ResultStore]:
        """The stores for results of remote jobs, by endpoint."""
        return {
            endpoint: store
            for each in self.all
            if each.result_stores is not None
            for endpoint, store in each.result_stores().items()
        }

    def operator_remotes(self, settings: Settings) -> Mapping[str, OperatorRemote]:
        """The operator's remotes, by the name that jobs use for them.

        Raises SettingsInvalid for one that no adapter can use, so that a process fails at its start
        and not at the first job.
        """
        return {
            name: remote
            for each in self.all
            if each.operator_remotes is not None
            for name, remote in each.operator_remotes(settings).items()
        }

    def maintenance(self) -> Sequence[Callable[[MaintenanceContext], Sequence[Loop]]]:
        """The functions that make the maintenance loops of all products."""
        return [each.maintenance for each in self.all if each.maintenance is not None]


def _checked(name: str, loaded: object) -> Product:
    if not isinstance(loaded, Product):
        raise SettingsInvalid(
            f"the entry point {name} of coatcheck.products names {loaded!r}, which is not a "
            "coatcheck.product.Product"
        )
    if loaded.name != name:
        raise SettingsInvalid(
            f"the entry point {name} of coatcheck.products names a product with another name: "
            f"{loaded.name}"
        )
    reserved = {service for service, owner in reserved_services().items() if owner == name}
    if reserved != {*loaded.services}:
        raise SettingsInvalid(
            f"the product {name} has the services {_listed(loaded.services)}, but entry points of "
            f"coatcheck.services for {_listed(reserved)}: they must be the same"
        )
    return loaded


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
