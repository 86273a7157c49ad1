"""The names of the ablation scenario's figures."""

from enum import StrEnum

from bench.ablation.variants import Variant


class Measure(StrEnum):
    CPU = "cpu_us"
    WAL = "wal_bytes"
    HOT = "hot_percent"


def figure(variant: Variant, measure: Measure) -> str:
    """The name under which a result is kept."""
    return f"{variant.key}_{measure}"
