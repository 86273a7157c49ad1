"""What a product is: one registration of all that it adds to servers, workers and maintenance.

A product's package has a module that makes a ``Product`` and nothing else, named by an entry point
(``installed.py``). That module is imported by every process in which the product is on, so it
imports the rest of its package only inside the functions that it registers:

    def _routes(context: ProductContext) -> Sequence[Operation]:
        from my_package import routes

        return routes.operations(context.server)

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
    from coatcheck.core.webhook_payloads import JobRenderer, SubjectRenderer
    from coatcheck.db.notifications import Notifier
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
    """How one check of ``coatcheck doctor`` ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check of ``coatcheck doctor`` found."""

    subject: str
    verdict: Verdict
    found: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class ProductContext:
    """What a product's routes are made on: the server's parts, and the products that are on."""

    server: ServerContext
    products: Products


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What a product's own workers are made with. ``notifier`` is shared by all of a process."""

    settings: Settings
    notifier: Notifier


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """What a product adds. Everything but its name is optional.

    ``services`` are the names of services that are the product's alone: its jobs are those of these
    services. They are entry points of ``coatcheck.services`` as well.
    """

    name: str
    services: tuple[str, ...] = ()

    routes: Callable[[ProductContext], Sequence[Route]] | None = None
    """Its HTTP API."""
    unrouted_formats: Callable[[], Mapping[str, ProblemFormat]] | None = None
    """How errors are written at paths that have no route, by path prefix."""
    request_headers: tuple[str, ...] = ()
    """Headers that its routes read, and that pages of other origins may send."""
    response_headers: tuple[str, ...] = ()
    """Headers that its routes answer, and that pages of other origins may read."""
    job_adapter: Callable[[ServerContext], JobAdapter] | None = None
    """Shows, cancels and retries its jobs for whoever lists the jobs of all products."""
    job_payload: Callable[[ServerContext], JobRenderer] | None = None
    """What webhooks say of its jobs."""
    subject_payloads: Callable[[ServerContext], Mapping[SubjectKind, SubjectRenderer]] | None = None
    """What webhooks say of what is no job, by its kind."""
    adapts_other_jobs: bool = False
    """Whether its adapter and its payload are also for jobs of services that are no product's:
    those that users declare or register. One product at most."""
    adapts_grouped_jobs: bool = False
    """Whether its adapter is also for jobs of whatever service that belong to a run. One product at
    most."""

    call_services: Callable[[Settings], AbstractAsyncContextManager[Sequence[Service]]] | None = (
        None
    )
    """Services whose jobs wait for others: one worker runs those of all products, with slots of its
    own (COATCHECK_CALLS_CONCURRENCY). Open while it runs."""
    workers: Callable[[WorkerContext], AbstractAsyncContextManager[Sequence[Worker]]] | None = None
    """Workers of its own in each worker process. Open while they run; none if it has nothing to
    run with these settings."""
    maintenance: Callable[[MaintenanceContext], Sequence[Loop]] | None = None
    """Its loops, which every server and worker runs."""

    result_stores: Callable[[], Mapping[str, ResultStore]] | None = None
    """What stores the results of its jobs that remotes run, by endpoint."""
    operator_remotes: Callable[[Settings], Mapping[str, OperatorRemote]] | None = None
    """The operator's own remotes, by the name under which its jobs ask for them. Raises
    SettingsInvalid for one that no adapter can use."""
    explainer: Callable[[Engine], JobExplainer] | None = None
    """Says why its jobs wait, where only the product knows."""
    checks: Callable[[Settings], Awaitable[Sequence[Finding]]] | None = None
    """What ``coatcheck doctor`` checks for it."""


@dataclass(frozen=True, slots=True)
class Products:
    """The products that are on in this process, in alphabetical order."""

    all: tuple[Product, ...]

    @classmethod
    def load(cls, wanted: Sequence[str] = ()) -> Products:
        """Import the products of these names, or all that are installed if there are none.

        Raises SettingsInvalid for one that is not installed, cannot be imported, or does not fit
        its entry points; and for two that cannot be on together.
        """
        names = chosen_products(wanted)
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
        """What stores the results of remote jobs, by endpoint."""
        return {
            endpoint: store
            for each in self.all
            if each.result_stores is not None
            for endpoint, store in each.result_stores().items()
        }

    def operator_remotes(self, settings: Settings) -> Mapping[str, OperatorRemote]:
        """The operator's own remotes, by the name under which jobs ask for them.

        Raises SettingsInvalid for one that no adapter can use: before any job meets it.
        """
        return {
            name: remote
            for each in self.all
            if each.operator_remotes is not None
            for name, remote in each.operator_remotes(settings).items()
        }

    def maintenance(self) -> Sequence[Callable[[MaintenanceContext], Sequence[Loop]]]:
        """What makes the loops of all products."""
        return [each.maintenance for each in self.all if each.maintenance is not None]


def _checked(name: str, loaded: object) -> Product:
    if not isinstance(loaded, Product):
        raise SettingsInvalid(
            f"the entry point {name} of coatcheck.products names {loaded!r}, which is no "
            "coatcheck.product.Product"
        )
    if loaded.name != name:
        raise SettingsInvalid(
            f"the entry point {name} of coatcheck.products names a product that is called "
            f"{loaded.name}"
        )
    reserved = {service for service, owner in reserved_services().items() if owner == name}
    if reserved != {*loaded.services}:
        raise SettingsInvalid(
            f"the product {name} has the services {_listed(loaded.services)}, and entry points of "
            f"coatcheck.services for {_listed(reserved)}: these must be the same"
        )
    return loaded


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
