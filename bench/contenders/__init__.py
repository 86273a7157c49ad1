"""Coatcheck and comparable systems: one module each, in the order of the report."""

from bench.contenders import (
    bullmq,
    celery,
    coatcheck,
    graphile_worker,
    pg_boss,
    pgqueuer,
    procrastinate,
)
from bench.contenders.contract import Contender

# The peer that all ratios are taken to.
REFERENCE = pgqueuer.CONTENDER.name

CONTENDERS: tuple[Contender, ...] = (
    coatcheck.CONTENDER,
    pgqueuer.CONTENDER,
    procrastinate.CONTENDER,
    graphile_worker.CONTENDER,
    pg_boss.CONTENDER,
    celery.CONTENDER,
    bullmq.CONTENDER,
)
