"""The surfaces that one ``coatcheck serve`` serves: all of them, on one port."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coatcheck.control.app import Surface
from coatcheck.surfaces.gateway import surface as gateway

SURFACES: Final[Sequence[Surface]] = (gateway.operations,)
