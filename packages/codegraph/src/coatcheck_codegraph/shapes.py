"""What tells functions of one name apart: the types of their parameters, and how many they take."""

from __future__ import annotations

import re
from typing import Final

from coatcheck_codegraph.entities import Declared, Entity, Overloads

_PARAMETER_NAME: Final = re.compile(r"(?<=[\s*&>])\w+(?=\s*(?:\[\s*\]\s*)*(?:,|\)[\s\w&]*$))")
_SPACE: Final = re.compile(r"\s+")


def shape_of(declared: Declared) -> str:
    """The types of a function's parameters, by which overloads are told apart."""
    _, _, parameters = declared.declaration.signature.partition("(")
    return _SPACE.sub("", _PARAMETER_NAME.sub("", parameters))


def is_overloadable(declared: Declared) -> bool:
    """Whether others may have the name of a function in the same place, and be called by it."""
    declaration = declared.declaration
    return declaration.kind == "function" and declaration.parameters is not None


def fits(parameters: tuple[int, int] | None, arguments: int) -> bool:
    """Whether so many arguments can be given to what takes ``parameters``."""
    if parameters is None or arguments < 0:
        return True
    least, most = parameters
    return least <= arguments and (most < 0 or arguments <= most)


def levels_of(entity: Entity | None) -> tuple[tuple[Declared, ...], ...]:
    """The functions that an entity stands for, if there may be more of its name elsewhere."""
    if isinstance(entity, Declared):
        return ((entity,),) if is_overloadable(entity) else ()
    return entity.levels if isinstance(entity, Overloads) else ()
