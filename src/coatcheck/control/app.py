"""The control plane's composition root: every route, middleware and error handler, put together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from coatcheck.control.problems import (
    UnexpectedErrors,
    answer_coatcheck_error,
    answer_http_exception,
)
from coatcheck.control.readiness import Readiness
from coatcheck.control.request_ids import RequestIds
from coatcheck.control.routes import health, metrics, openapi
from coatcheck.domain.errors import CoatcheckError
from coatcheck.engine import Engine
from coatcheck.settings import Settings
from coatcheck.telemetry.metrics import QueueDepth
from coatcheck.version import __version__


def create_app(settings: Settings, engine: Engine) -> Starlette:
    """The application that ``coatcheck serve`` runs. The engine stays the caller's to close."""
    readiness = Readiness(settings, engine)

    async def queue_depth() -> QueueDepth:
        return (await engine.health()).depth

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await readiness.close()

    operations = [*health.operations(readiness.checks()), *metrics.operations(queue_depth)]
    operations.append(openapi.operation(operations, version=__version__))
    app = Starlette(
        routes=[operation.route() for operation in operations],
        # The outermost first: an unexpected error is answered under its request's id.
        middleware=[Middleware(RequestIds), Middleware(UnexpectedErrors)],
        exception_handlers={
            CoatcheckError: answer_coatcheck_error,
            HTTPException: answer_http_exception,
        },
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    return app
