"""What handlers may return, and how it is written."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import json
import uuid
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coatcheck.encoding import encode


class Model(pydantic.BaseModel):
    number: int
    when: dt.date


class Struct(msgspec.Struct):
    number: int


@dataclasses.dataclass
class Data:
    model: Model


class Color(enum.Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "json_text"),
    [
        (None, "null"),
        ({"a": [1, 2.5, True, "é"]}, '{"a":[1,2.5,true,"é"]}'),
        (1.0, "1.0"),
        (2**70, "1180591620717411303424"),
        ((1, {2}), "[1,[2]]"),
        (Struct(1), '{"number":1}'),
        (Model(number=1, when=dt.date(2026, 1, 2)), '{"number":1,"when":"2026-01-02"}'),
        (
            [Data(Model(number=1, when=dt.date(2026, 1, 2)))],
            '[{"model":{"number":1,"when":"2026-01-02"}}]',
        ),
        (Color.RED, '"red"'),
        (dt.datetime(2026, 1, 2, tzinfo=dt.UTC), '"2026-01-02T00:00:00Z"'),
        (uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (decimal.Decimal("1.50"), '"1.50"'),
        (b"hi", '"aGk="'),
        ({1: "a"}, '{"1":"a"}'),
        (float("nan"), "null"),
    ],
)
def test_a_value_is_written_as_json(value: Any, json_text: str) -> None:
    assert encode(value).decode() == json_text


def circular() -> list[Any]:
    items: list[Any] = []
    items.append(items)
    return items


@pytest.mark.parametrize("value", [object(), {(1, 2): 3}, lambda: 1, "\ud800", circular()])
def test_what_json_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError, RecursionError)):
        encode(value)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
)
def test_every_json_value_survives_and_keeps_its_type(value: Any) -> None:
    back = json.loads(encode(value))
    assert back == value
    assert repr(back) == repr(value)
