"""All attacks by name. Each module of this package holds the attacks on one limit."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from chaos.abuse.attack import Attack

ATTACKS: Final[dict[str, Attack]] = {
    attack.name: attack
    for module in iter_modules(__path__)
    for attack in import_module(f"{__name__}.{module.name}").ATTACKS
}
