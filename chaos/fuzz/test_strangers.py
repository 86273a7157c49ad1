"""Schemathesis without a key. In `make test`, the tenant matrix calls every route without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from coatcheck.http import parameters
from tests.budget import times
from tests.contract.tenant_resources import TenantResources
from tests.contract.test_schemathesis import WAIT_SECONDS, run


@pytest.fixture(autouse=True)
def nobody_waits_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parameters, "WAIT_SECONDS_MAX", WAIT_SECONDS)


async def test_whatever_a_stranger_sends_is_answered_as_documented(
    resources: TenantResources, tmp_path: Path
) -> None:
    await run(
        resources,
        tmp_path,
        *("--phases", "fuzzing"),
        *("--max-examples", str(2 * times())),
        *("--exclude-checks", "positive_data_acceptance"),
    )
