"""The names and units of the llm scenario's figures."""

from dataclasses import dataclass
from enum import StrEnum


class LlmFigure(StrEnum):
    DIRECT_FIRST_P50 = "direct_first_p50"
    DIRECT_FIRST_P95 = "direct_first_p95"
    THROUGH_FIRST_P50 = "through_first_p50"
    THROUGH_FIRST_P95 = "through_first_p95"
    LATER_P50 = "later_p50"
    LATER_P95 = "later_p95"
    DIRECT_RATE = "direct_rate"
    THROUGH_RATE = "through_rate"
    DIRECT_GAP_P99 = "direct_gap_p99"
    THROUGH_GAP_P99 = "through_gap_p99"


@dataclass(frozen=True)
class Row:
    figure: LlmFigure
    title: str
    unit: str


ROWS = (
    Row(LlmFigure.DIRECT_FIRST_P50, "first token, direct, p50", "ms"),
    Row(LlmFigure.THROUGH_FIRST_P50, "first token, through Coatcheck, p50", "ms"),
    Row(LlmFigure.LATER_P50, "later than the direct call right before it, p50", "ms"),
    Row(LlmFigure.DIRECT_FIRST_P95, "first token, direct, p95", "ms"),
    Row(LlmFigure.THROUGH_FIRST_P95, "first token, through Coatcheck, p95", "ms"),
    Row(LlmFigure.LATER_P95, "later than the direct call right before it, p95", "ms"),
    Row(LlmFigure.DIRECT_RATE, "4 streams at once, direct", "tokens/s"),
    Row(LlmFigure.THROUGH_RATE, "4 streams at once, through Coatcheck", "tokens/s"),
    Row(LlmFigure.DIRECT_GAP_P99, "between two tokens of a stream, direct, p99", "ms"),
    Row(LlmFigure.THROUGH_GAP_P99, "between two tokens of a stream, through Coatcheck, p99", "ms"),
)
