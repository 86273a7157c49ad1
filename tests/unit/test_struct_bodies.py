"""JSON bodies read into types."""

from __future__ import annotations

from typing import Annotated

import msgspec
import pytest

from coatcheck.domain.errors import (
    BodyTooLarge,
    InvalidBody,
    InvalidInput,
    InvalidParameter,
    WrongMediaType,
)
from coatcheck.http.bodies import read_body
from tests.unit.calls import a_call


class Part(msgspec.Struct, forbid_unknown_fields=True):
    size: Annotated[int, msgspec.Meta(ge=1)]


class Whole(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    parts: list[Part] = []


async def test_a_body_that_fits() -> None:
    call = a_call(body=b'{"name": "a", "parts": [{"size": 1}]}')
    assert await read_body(call, Whole, 100) == Whole("a", [Part(1)])


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"{}", "body"),
        (b"[]", "body"),
        (b'{"name": 1}', "name"),
        (b'{"name": "a", "parts": [{"size": 1}, {"size": 0}]}', "parts[1].size"),
        (b'{"name": "a", "parts": {}}', "parts"),
    ],
)
async def test_a_body_that_does_not_fit_says_where(body: bytes, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        await read_body(a_call(body=body), Whole, 100)
    assert [issue.field for issue in caught.value.issues] == [field]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"name": "a", "colour": "red"}', "colour"),
        (b'{"name": "a", "parts": [{"size": 1}, {"size": 1, "colour": "red"}]}', "parts[1].colour"),
    ],
)
async def test_a_field_that_nobody_reads_is_refused_by_name(body: bytes, field: str) -> None:
    with pytest.raises(InvalidParameter, match="is not a field") as caught:
        await read_body(a_call(body=body), Whole, 100)
    assert caught.value.field == field


@pytest.mark.parametrize("body", [b"", b"{", b'{"name": NaN}', b'{"name": "\\u0000"}', b"\xff"])
async def test_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidBody):
        await read_body(a_call(body=body), Whole, 100)


async def test_a_body_of_another_type_is_refused() -> None:
    with pytest.raises(WrongMediaType):
        await read_body(a_call(("Content-Type", "text/plain"), body=b'{"name": "a"}'), Whole, 100)


async def test_a_body_that_is_too_large_is_refused() -> None:
    with pytest.raises(BodyTooLarge):
        await read_body(a_call(("Content-Length", "101")), Whole, 100)
    with pytest.raises(BodyTooLarge):
        await read_body(a_call(body=b" " * 101), Whole, 100)
