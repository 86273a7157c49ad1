"""The sizes of the ablation scenario. Every measurement is bounded."""

from dataclasses import dataclass

from coatcheck.domain.limits import CLAIM_ROWS_MAX


@dataclass(frozen=True)
class Amounts:
    exchanges: int = 60
    """Measured ones; each completes a batch and claims the next."""
    warm_up: int = 3
    """The first of these only claims."""
    batch: int = CLAIM_ROWS_MAX
    organisations: int = 20

    @property
    def measured_jobs(self) -> int:
        return self.exchanges * self.batch

    @property
    def jobs(self) -> int:
        return (self.warm_up + self.exchanges) * self.batch


FULL = Amounts()
QUICK = Amounts(exchanges=10)
