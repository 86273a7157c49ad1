"""Every attack of ``make abuse``, in its short form: what it got, in counts and bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.abuse.attacks import ATTACKS
from chaos.abuse.run import attacked_shortly


@pytest.mark.parametrize("name", ATTACKS)
async def test_an_attack_gets_no_more_than_its_bound(name: str, tmp_path: Path, dsn: str) -> None:
    figures = await attacked_shortly(ATTACKS[name], tmp_path, dsn)

    assert ATTACKS[name].complaints(figures) == [], figures
