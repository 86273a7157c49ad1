"""Secrets are found in texts however they are written there."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from coatcheck.remotes.caller import without_secrets

SECRET = 'Basic a"b/c\\d='


@pytest.mark.parametrize(
    "written",
    [SECRET, quote(SECRET, safe=""), json.dumps(SECRET), json.dumps(SECRET).replace("/", "\\/")],
    ids=["as it is", "in a URL", "in JSON", "in JSON with slashes escaped"],
)
def test_a_secret_is_masked_however_it_is_written(written: str) -> None:
    shown = without_secrets(f"was sent {written} today", [SECRET])
    assert "***" in shown
    for part in ("Basic", "c", "d="):
        assert part not in shown.replace("today", "").replace("sent", "")
