"""What every command of a deployment begins with: its environment, its logs, its privacy."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from coatcheck.cli.errors import show_tracebacks
from coatcheck.process_access import close_to_others
from coatcheck.settings import Settings, likely_typos
from coatcheck.telemetry.event_log import EVENTS
from coatcheck.telemetry.logs import configure_logging

_log = logging.getLogger(__name__)


def overridden(options: Mapping[str, object | None]) -> dict[str, str]:
    """The environment with the options that were given: both are checked in the same place."""
    given = {name: str(value) for name, value in options.items() if value is not None}
    return dict(os.environ) | given


def prepare(settings: Settings) -> None:
    """Set the process's logs up, keep other processes from reading its environment and memory, and
    warn of settings that look misspelt."""
    close_to_others()
    handler = configure_logging(settings.log_level, settings.log_format)
    if settings.log_events and logging.getLogger().isEnabledFor(logging.INFO):
        EVENTS.open(handler)
    if settings.log_level == "debug":
        show_tracebacks()
    for given, meant in likely_typos(os.environ).items():
        _log.warning("%s is no setting and is ignored; did you mean %s?", given, meant)
