"""Every attack, by name. A module holds the attacks of one wall."""

from __future__ import annotations

from typing import Final

from chaos.abuse.attack import Attack
from chaos.abuse.attacks import pipelining, threads

_MODULES: Final = (pipelining, threads)

ATTACKS: Final[dict[str, Attack]] = {
    attack.name: attack for module in _MODULES for attack in module.ATTACKS
}
