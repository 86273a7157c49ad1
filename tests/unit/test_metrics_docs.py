"""What is written about the metrics names those that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from coatcheck.telemetry import metrics
from coatcheck.telemetry.metrics import DECLARED
from coatcheck.telemetry.queue_metrics import QUEUE_METRICS
from tests.markdown import REPOSITORY

DASHBOARD = REPOSITORY / "examples" / "grafana" / "coatcheck.json"
PAGES = [
    REPOSITORY / "docs" / "how-to" / "watch-with-prometheus.md",
    REPOSITORY / "docs" / "how-to" / "run-in-production.md",
    REPOSITORY / "docs" / "explanation" / "slos.md",
    REPOSITORY / "examples" / "prometheus" / "alerts.yml",
]
_NAME = re.compile(r"(?<!#)\bcoatcheck_[a-z_]+\b")
"""Not the anchor of a setting, which a page may link to."""
_SELECTOR = re.compile(r"\b(coatcheck_[a-z_]+)(?:\{([^}]*)\})?")
_GROUPED = re.compile(r"by \(([^)]*)\)")
_HISTOGRAM_SERIES = ("_bucket", "_sum", "_count")


def series() -> dict[str, set[str]]:
    """Everything that can be asked for, and its labels."""
    known: dict[str, set[str]] = {}
    for name, kind, _, labels in (*QUEUE_METRICS, *DECLARED):
        if kind == "histogram":
            known |= {name + suffix: set(labels) | {"le"} for suffix in _HISTOGRAM_SERIES}
        else:
            known[name] = set(labels)
    return known


def expressions() -> Iterator[str]:
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]


def test_every_expression_of_the_dashboard_asks_for_what_there_is() -> None:
    known = series()
    asked = list(expressions())
    assert len(asked) > 30
    for expression in asked:
        found = _SELECTOR.findall(expression)
        assert found, expression
        for name, selector in found:
            assert name in known, expression
            labels = {word.split("=")[0].strip(" !~") for word in selector.split(",") if word}
            assert labels <= known[name], expression
        labels = {
            word.strip() for group in _GROUPED.findall(expression) for word in group.split(",")
        }
        assert labels <= set.union(*(known[name] for name, _ in found)), expression


def test_the_dashboard_shows_every_metric() -> None:
    shown = {name for expression in expressions() for name in _NAME.findall(expression)}
    declared = {each.name for each in (*QUEUE_METRICS, *DECLARED)}
    assert {
        name
        for name in declared
        if not shown & {name, *(name + suffix for suffix in _HISTOGRAM_SERIES)}
    } == set()


def test_the_service_levels_ask_for_bounds_that_there_are() -> None:
    metrics.record_request("POST", "/x/async/y", 202, 0.01)
    bounds = {
        (name, dict(labels)["le"])
        for family in metrics.snapshot("tests").values()
        for name, labels in family.samples
        if name.endswith("_bucket")
    }
    page = (REPOSITORY / "docs" / "explanation" / "slos.md").read_text()
    asked = re.findall(r'(coatcheck_[a-z_]+_bucket)\{[^}]*le="([^"]+)"', page)
    assert len(asked) == 4
    assert set(asked) <= bounds


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_metrics_that_there_are(page: Path) -> None:
    known = set(series()) | {each.name for each in DECLARED}
    assert set(_NAME.findall(page.read_text())) - known == set()
