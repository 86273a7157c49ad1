"""Sets up server processes: environment, logging, protection from other processes."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from coatcheck.cli.command_errors import show_tracebacks
from coatcheck.process_access import close_to_others
from coatcheck.settings import Settings, likely_typos
from coatcheck.telemetry.event_log import EVENTS
from coatcheck.telemetry.logs import configure_logging

_log = logging.getLogger(__name__)


def overridden(options: Mapping[str, object | None]) -> dict[str, str]:
    """The environment with the given options applied, so that both are validated together."""
    given = {name: str(value) for name, value in options.items() if value is not None}
    return dict(os.environ) | given


def prepare(settings: Settings) -> None:
    """Configure logging, keep other processes from reading our environment and memory, and warn
    about settings that look misspelt."""
    close_to_others()
    handler = configure_logging(settings.log_level, settings.log_format)
    if settings.log_events and logging.getLogger().isEnabledFor(logging.INFO):
        EVENTS.open(handler)
    if settings.log_level == "debug":
        show_tracebacks()
    for given, meant in likely_typos(os.environ).items():
        _log.warning("%s is not a setting and is ignored; did you mean %s?", given, meant)
