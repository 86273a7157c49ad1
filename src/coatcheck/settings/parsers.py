"""From the text of a variable to its value, or a refusal."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeVar

from coatcheck.domain import api_keys
from coatcheck.domain.lanes import Lane
from coatcheck.settings.issuers import TokenIssuer, read_issuers

Value = TypeVar("Value")


class Refused(ValueError):
    """The text is not allowed; the declaration's ``allowed`` says what is.

    May say why, in words that quote nothing of a secret.
    """


def whole_number(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise Refused from None
        if not low <= number <= high:
            raise Refused
        return number

    return parse


def number(low: float, high: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            raise Refused from None
        if not math.isfinite(number) or not low <= number <= high:
            raise Refused
        return number

    return parse


def one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in choices:
            raise Refused
        return text.lower()

    return parse


def by_lane(
    parse_value: Callable[[str], Value], defaults: str
) -> Callable[[str], Mapping[Lane, Value]]:
    """``lane=value`` pairs; a lane that is left out keeps its default."""

    def parse_pairs(text: str) -> dict[Lane, Value]:
        values: dict[Lane, Value] = {}
        for pair in text.split(","):
            name, equals, value = pair.partition("=")
            lane = name.strip().lower()
            if not equals or lane not in set(Lane) or Lane(lane) in values:
                raise Refused
            values[Lane(lane)] = parse_value(value.strip())
        return values

    fallback = parse_pairs(defaults)
    return lambda text: MappingProxyType(fallback | parse_pairs(text))


def database_url(text: str) -> str:
    # The rest is the driver's to judge: it knows lists of hosts, sockets and parameters.
    if not text.startswith(("postgresql://", "postgres://")):
        raise Refused
    return text


BLOB_SCHEMES: Final = ("file", "s3", "az", "abfss", "gs")


def blob_url(text: str) -> str:
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in BLOB_SCHEMES:
        raise Refused
    if scheme == "file" and not rest.startswith("/"):
        raise Refused
    return text


def absolute_path(text: str) -> Path:
    path = Path(text).expanduser()
    if not path.is_absolute():
        raise Refused
    return path


def non_empty(text: str) -> str:
    if not text or any(character.isspace() for character in text):
        raise Refused
    return text


def optional(parse: Callable[[str], str]) -> Callable[[str], str]:
    """What ``parse`` takes, or nothing at all."""
    return lambda text: parse(text) if text else ""


def long_secret(characters_min: int) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if len(text) < characters_min:
            raise Refused
        return text

    return parse


def stripe_secret(text: str) -> str:
    if not text.startswith("whsec_") or text == "whsec_":
        raise Refused
    return text


def api_key(text: str) -> str:
    if api_keys.parse(text.encode()) is None:
        raise Refused
    return text


def token_issuers(text: str) -> tuple[TokenIssuer, ...]:
    try:
        return read_issuers(text)
    except ValueError as error:
        raise Refused(str(error)) from None
