"""The parts for operators: settings and metrics."""

from __future__ import annotations

from collections.abc import Iterable

from coatcheck.settings import SETTINGS
from coatcheck.settings.settings import Setting
from coatcheck.telemetry import metrics  # noqa: F401 - which declares them
from coatcheck.telemetry.metrics import DECLARED, LABEL_VALUES_MAX, DeclaredMetric
from coatcheck.telemetry.queue_metrics import QUEUE_METRICS
from scripts.reference.parts import code, table


def _settings() -> str:
    return "\n".join(map(_setting, SETTINGS.values()))


def _setting(setting: Setting) -> str:
    lines = [
        f"## `{setting.variable}`",
        "",
        setting.meaning,
        "",
        f"- Allowed: {setting.allowed}",
        f"- Default: {setting.shown_default}",
        *(["- Never shown in a log line or an error."] if setting.secret else []),
        "",
    ]
    return "\n".join(lines)


def _metrics(declared: Iterable[DeclaredMetric]) -> str:
    return table(
        ["metric", "type", "labels", "meaning"],
        (
            [code(name), kind, ", ".join(map(code, labels)), text]
            for name, kind, text, labels in declared
        ),
    )


def _of_processes() -> str:
    return (
        "A label with user-defined values (`endpoint`, `code`) has at most "
        f"{LABEL_VALUES_MAX} of them per process; the rest is `other`.\n\n{_metrics(DECLARED)}"
    )


SETTING_PARTS = {"settings": _settings}
METRIC_PARTS = {
    "metrics of the queue": lambda: _metrics(QUEUE_METRICS),
    "metrics of processes": _of_processes,
}
