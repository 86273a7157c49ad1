"""What payloads become as arguments, and what a caller is told of those that do not fit."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import ipaddress
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest

from coatcheck.domain.errors import InvalidInput
from coatcheck.job import Job
from coatcheck.service import Service


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(msgspec.Struct, forbid_unknown_fields=True):
    x: int
    y: int = 0

    def __post_init__(self) -> None:
        if self.x == 13:
            raise ValueError("x is unlucky")
        if self.x > 1000:
            raise ValueError(f"{self.x} is too far out")


class Node(msgspec.Struct):
    value: int
    children: list[Node] = []


@dataclasses.dataclass
class Size:
    width: int
    height: int = 1


class Box(TypedDict):
    lid: bool


class Pair(NamedTuple):
    left: int
    right: str


class Line(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    text: str = pydantic.Field(max_length=5, alias="content")
    weights: dict[str, float] = {}
    owner: uuid.UUID | None = None

    @pydantic.field_validator("text")
    @classmethod
    def _check(cls, text: str) -> str:
        if text == "no":
            raise ValueError("must be agreeable")
        if text.startswith("q"):
            raise ValueError(f"{text} begins with a q")
        return text


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]


@pydantic.dataclasses.dataclass
class Checked:
    number: Annotated[int, pydantic.Field(gt=0)]


@dataclasses.dataclass
class Bounded:
    number: Annotated[int, pydantic.Field(gt=0)]


Decode = Callable[[bytes], dict[str, Any]]


def decoder(annotation: Any, *default: Any) -> Decode:
    """Decodes for a handler with one parameter, ``value``, of this type."""

    def handler(value: Any) -> None: ...

    if default:
        handler.__defaults__ = default
    handler.__annotations__["value"] = annotation
    service = Service("test")
    service.post("/")(handler)
    return service.endpoints["post__"].decode


def issues(decode: Decode, payload: bytes) -> list[tuple[str, str]]:
    with pytest.raises(InvalidInput) as caught:
        decode(payload)
    return [(issue.field, issue.issue) for issue in caught.value.issues]


@pytest.mark.parametrize(
    ("annotation", "json", "value"),
    [
        (str, b'"text"', "text"),
        (int, b"5", 5),
        (int, b"123456789012345678901234567890", 123456789012345678901234567890),
        (float, b"5", 5.0),
        (bool, b"true", True),
        (bytes, b'"aGk="', b"hi"),
        (int | None, b"null", None),
        (int | str, b'"x"', "x"),
        (list[int], b"[1,2]", [1, 2]),
        (set[str], b'["a"]', {"a"}),
        (tuple[int, str], b'[1,"a"]', (1, "a")),
        (dict[str, list[int]], b'{"a":[1]}', {"a": [1]}),
        (Any, b'{"a":[1,2.5,null]}', {"a": [1, 2.5, None]}),
        (object, b"[1]", [1]),
        (Literal["a", "b"], b'"b"', "b"),
        (Color, b'"red"', Color.RED),
        (datetime.date, b'"2026-01-02"', datetime.date(2026, 1, 2)),
        (
            datetime.datetime,
            b'"2026-01-02T03:04:05Z"',
            datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
        ),
        (uuid.UUID, b'"00000000-0000-0000-0000-000000000001"', uuid.UUID(int=1)),
        (decimal.Decimal, b'"1.50"', decimal.Decimal("1.50")),
        (Annotated[int, msgspec.Meta(gt=0)], b"1", 1),
        (Point, b'{"x":1}', Point(1)),
        (Node, b'{"value":1,"children":[{"value":2}]}', Node(1, [Node(2)])),
        (Size, b'{"width":2}', Size(2)),
        (Box, b'{"lid":true}', {"lid": True}),
        (Pair, b'[1,"a"]', Pair(1, "a")),
        (Line, b'{"content":"hi"}', Line(content="hi")),
        (list[Line], b'[{"content":"hi"}]', [Line(content="hi")]),
        (Line | None, b"null", None),
        (Annotated[int, pydantic.Field(gt=0)], b"1", 1),
        (Cat | Dog, b'{"kind":"dog"}', Dog(kind="dog")),
        (Path, b'"/a/b"', Path("/a/b")),
        (ipaddress.IPv4Address, b'"10.0.0.1"', ipaddress.IPv4Address("10.0.0.1")),
        (pydantic.PositiveInt, b"3", 3),
    ],
)
def test_a_value_of_each_kind_of_type_is_read(annotation: Any, json: bytes, value: Any) -> None:
    assert decoder(annotation)(b'{"value":' + json + b"}") == {"value": value}


@pytest.mark.parametrize(
    ("annotation", "json", "field", "issue"),
    [
        (str, b"5", "value", "expected `str`, got `int`"),
        (int, b'"5"', "value", "expected `int`, got `str`"),
        (int, b"5.5", "value", "expected `int`, got `float`"),
        (int, b"true", "value", "expected `int`, got `bool`"),
        (int, b"null", "value", "expected `int`, got `null`"),
        (float, b"1e999", "value", "number out of range"),
        (list[int], b'[1,"a"]', "value[1]", "expected `int`, got `str`"),
        (dict[str, int], b'{"k":"v"}', "value[...]", "expected `int`, got `str`"),
        (dict[int, int], b'{"k":1}', "value[key]", "expected `int`, got `str`"),
        (set[Any], b"[[]]", "value", "contains a value that cannot be a set member or a key"),
        (Literal["a", "b"], b'"secret"', "value", "expected one of 'a', 'b'"),
        (Literal["a", "b"] | None, b'"secret"', "value", "not one of the allowed values"),
        (Color, b'"secret"', "value", "expected one of 'red', 'blue'"),
        (list[Color], b'["secret"]', "value[0]", "not one of the allowed values"),
        (datetime.datetime, b'"secret"', "value", "invalid RFC3339 encoded datetime"),
        (Annotated[int, msgspec.Meta(gt=0)], b"0", "value", "expected `int` >= 1"),
        (Point, b'{"y":1}', "value.x", "missing"),
        (Point, b'{"x":1,"z":2}', "value.z", "unexpected"),
        (list[Point], b'[{"x":"a"}]', "value[0].x", "expected `int`, got `str`"),
        (Point, b'{"x":13}', "value", "x is unlucky"),
        (Point, b'{"x":4321}', "value", "refused by its own check"),
        (Size, b"{}", "value.width", "missing"),
        (Line, b"{}", "value.content", "missing"),
        (Line, b'{"content":"a","more":1}', "value.more", "unexpected"),
        (
            Line,
            b'{"content":"secret"}',
            "value.content",
            "string should have at most 5 characters",
        ),
        (Line, b'{"content":"no"}', "value.content", "value error, must be agreeable"),
        (Line, b'{"content":"quiz"}', "value.content", "refused (value_error)"),
        (
            Line,
            b'{"content":"a","weights":{"secret":"x"}}',
            "value.weights[...]",
            "input should be a valid number, unable to parse string as a number",
        ),
        (Line, b'{"content":"a","owner":"secret"}', "value.owner", "expected a UUID"),
        (Annotated[int, pydantic.Field(gt=5)], b"5", "value", "input should be greater than 5"),
        (
            Annotated[Cat | Dog, pydantic.Field(discriminator="kind")],
            b'{"kind":"secret"}',
            "value",
            "refused (union_tag_invalid)",
        ),
        (Checked, b'{"number":0}', "value.number", "input should be greater than 0"),
        (Bounded, b'{"number":0}', "value.number", "input should be greater than 0"),
    ],
)
def test_a_value_that_does_not_fit_is_told_by_field_and_reason(
    annotation: Any, json: bytes, field: str, issue: str
) -> None:
    assert issues(decoder(annotation), b'{"value":' + json + b"}") == [(field, issue)]


def test_a_parameter_without_annotation_takes_any_value() -> None:
    service = Service("test")

    def handler(value, other=None) -> None: ...  # type: ignore[no-untyped-def]

    service.post("/")(handler)
    decode = service.endpoints["post__"].decode
    assert decode(b'{"value":[1,{}]}') == {"value": [1, {}], "other": None}


def test_every_problem_is_told_at_once() -> None:
    service = Service("test")

    def handler(first: int, second: str, third: Line, fourth: float = 1.0) -> None: ...

    service.post("/")(handler)
    found = issues(
        service.endpoints["post__"].decode,
        b'{"second":1,"third":{"content":"a","owner":1,"x":2},"fourth":"f","fifth":5}',
    )
    assert found == [
        ("fifth", "unexpected"),
        ("first", "missing"),
        ("second", "expected `str`, got `int`"),
        ("third.owner", "UUID input should be a string, bytes or UUID object"),
        ("third.x", "unexpected"),
        ("fourth", "expected `float`, got `str`"),
    ]


def test_the_message_joins_the_issues() -> None:
    with pytest.raises(InvalidInput, match=r"\Aother: unexpected; value: missing\Z"):
        decoder(int)(b'{"other":1}')


@pytest.mark.parametrize(
    ("payload", "issue"),
    [
        (b"{", "not valid JSON: input data was truncated"),
        (b'{"value":NaN}', "not valid JSON: invalid character (byte 9)"),
        (b'{"value":Infinity}', "not valid JSON: invalid character (byte 9)"),
        (b'{"value":1} x', "not valid JSON: trailing characters (byte 13)"),
        (b"[1]", "expected a JSON object, with one field per argument"),
        (b"5", "expected a JSON object, with one field per argument"),
        (b'"text"', "expected a JSON object, with one field per argument"),
        (b'{"value":' + b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_payload_that_is_no_json_object_is_told_as_a_whole(payload: bytes, issue: str) -> None:
    found = issues(decoder(Any), payload)
    assert found == [("payload", issue)]


def test_bytes_that_are_no_text_are_told() -> None:
    assert issues(decoder(str), b'{"value":"\xff"}') == [("value", "not valid UTF-8")]


@pytest.mark.parametrize("payload", [b"", b"null"])
def test_no_payload_is_an_empty_object(payload: bytes) -> None:
    assert decoder(int, 7)(payload) == {"value": 7}
    assert issues(decoder(int), payload) == [("value", "missing")]


def test_a_handler_without_parameters_takes_an_empty_object_only() -> None:
    service = Service("test")

    def handler(job: Job) -> None: ...

    service.post("/")(handler)
    decode = service.endpoints["post__"].decode
    assert decode(b"{}") == {}
    assert issues(decode, b'{"job":1}') == [("job", "unexpected")]


def test_defaults_are_the_same_objects_as_in_the_signature() -> None:
    shared: list[int] = [1]
    line = Line(content="hi")
    assert decoder(list[int], shared)(b"{}")["value"] is shared
    assert decoder(Line, line)(b"{}")["value"] is line
    assert decoder(str, None)(b"{}")["value"] is None
    assert decoder(Point | None, None)(b"{}")["value"] is None


def test_a_long_list_of_problems_is_cut_and_counted() -> None:
    payload = b"{" + b",".join(b'"field%d":1' % number for number in range(50)) + b"}"
    found = issues(decoder(int), payload)
    assert len(found) == 21
    assert found[-1] == ("payload", "and 31 more issues")
    many = b'{"value":[' + b",".join([b'{"content":1}'] * 50) + b"]}"
    assert len(issues(decoder(list[Line]), many)) == 20


def test_a_field_name_of_the_caller_is_cut_and_cleaned() -> None:
    payload = msgspec.json.encode({"value": 1, "a\n" + "b" * 100: 1})
    assert issues(decoder(int), payload) == [("a\ufffd" + "b" * 62 + "...", "unexpected")]
