"""A name service for tests: the guard asks it instead of the system's."""

from __future__ import annotations

import ipaddress

from coatcheck.domain.errors import TooManyLookUps
from coatcheck.egress.resolver import NameNotFound
from coatcheck.egress.urls import Address


class Names:
    """Names and the answers they give: one after the other, the last one for ever."""

    def __init__(self, **answers: list[list[str]]) -> None:
        self._answers = {name.replace("__", "."): list(given) for name, given in answers.items()}
        self.asked: list[str] = []
        self.orgs: list[str] = []
        """Whose names they were."""

    async def __call__(self, host: str, org: str, timeout: float | None) -> list[Address]:
        self.asked.append(host)
        self.orgs.append(org)
        answers = self._answers.get(host)
        if answers is None:
            raise NameNotFound(host)
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        return [ipaddress.ip_address(text) for text in answer]


async def every_name_is_public(host: str, org: str, timeout: float | None) -> list[Address]:
    """A resolver that has a public address for whatever it is asked."""
    return [ipaddress.ip_address("93.184.215.14")]


class Busy:
    """A resolver at which every organisation has met its limit."""

    def __init__(self) -> None:
        self.orgs: list[str] = []

    async def __call__(self, host: str, org: str, timeout: float | None) -> list[Address]:
        self.orgs.append(org)
        raise TooManyLookUps(5)
