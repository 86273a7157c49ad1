from __future__ import annotations

import subprocess
import sys

import pytest

from coatcheck.telemetry import tracing
from coatcheck.telemetry.traceparents import is_sampled, is_valid, trace_id_of

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
SPAN_ID = "b7ad6b7169203331"
SAMPLED = f"00-{TRACE_ID}-{SPAN_ID}-01"
ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "junk",
        SAMPLED.upper(),
        f"{SAMPLED}-more",
        f"ff-{TRACE_ID}-{SPAN_ID}-01",
        f"00-{'0' * 32}-{SPAN_ID}-01",
        f"00-{TRACE_ID}-{'0' * 16}-01",
        f"00-{TRACE_ID}-{SPAN_ID}-1",
    ],
)
def test_what_is_no_traceparent_is_not_taken_for_one(wrong: str) -> None:
    assert not is_valid(wrong)
    assert not is_sampled(wrong)
    assert trace_id_of(wrong) is None


def test_a_traceparent_says_its_trace_and_whether_it_is_recorded() -> None:
    assert trace_id_of(SAMPLED) == TRACE_ID
    assert trace_id_of(None) is None
    assert is_sampled(SAMPLED)
    assert is_sampled(f"{SAMPLED[:-2]}03")
    assert not is_sampled(f"{SAMPLED[:-2]}02")


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        (ENDPOINT, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, True),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "true"}, False),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, False),
    ],
)
def test_opentelemetrys_own_variables_decide(environment: dict[str, str], wanted: bool) -> None:
    assert tracing.is_configured(environment) is wanted


def test_a_trace_ends_with_its_block_however_that_ends() -> None:
    def work() -> None:
        with tracing.span("work", "internal", SAMPLED, {}):
            assert tracing.current() == SAMPLED
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert tracing.current() is None


def test_without_a_trace_opentelemetry_is_not_even_imported() -> None:
    script = (
        "import sys, coatcheck.worker.worker, coatcheck.http.app\n"
        "from coatcheck.telemetry import tracing\n"
        "assert not tracing.start('worker') and tracing.current() is None\n"
        "with tracing.span('work', 'internal', None, {}): pass\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert said.stdout == "[]\n"
