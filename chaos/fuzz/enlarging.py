"""A pytest plugin: every Hypothesis test tries more examples, from the run's seed.

Hypothesis has a setting for its defaults, but none that multiplies a test's own number.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings

from tests.budget import times

_SETTINGS = "_hypothesis_internal_use_settings"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    enlarged: set[int] = set()
    for item in items:
        test: Any = getattr(item, "obj", None)
        test = getattr(test, "__func__", test)
        # The parameters of one function share its settings.
        if getattr(test, "is_hypothesis_test", False) and id(test) not in enlarged:
            enlarged.add(id(test))
            setattr(test, _SETTINGS, _more(getattr(test, _SETTINGS, None) or settings()))


def _more(asked: settings) -> settings:
    # Without a database of examples, the seed determines everything.
    return settings(
        asked, max_examples=asked.max_examples * times(), derandomize=False, database=None
    )
