"""A name service for tests: the guard asks it instead of the system's."""

from __future__ import annotations

import ipaddress

from coatcheck.egress.addresses import Address
from coatcheck.egress.resolver import NameNotFound


class Names:
    """Names and the answers they give: one after the other, the last one for ever."""

    def __init__(self, **answers: list[list[str]]) -> None:
        self._answers = {name.replace("__", "."): list(given) for name, given in answers.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int, timeout: float | None) -> list[Address]:
        self.asked.append(host)
        answers = self._answers.get(host)
        if answers is None:
            raise NameNotFound(host)
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        return [ipaddress.ip_address(text) for text in answer]


async def every_name_is_public(host: str, port: int, timeout: float | None) -> list[Address]:
    """A resolver that has a public address for whatever it is asked."""
    return [ipaddress.ip_address("93.184.215.14")]
