"""Decoding, for any payload: it fits and keeps its values, or is refused without being quoted."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pydantic
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from coatcheck.domain.errors import InvalidInput
from coatcheck.service import Endpoint, Service

CANARY = "zq-canary-7f3"

# How fast the machine is proves nothing here.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Point(msgspec.Struct):
    x: int
    tags: dict[str, str] = {}

    def __post_init__(self) -> None:
        for tag in self.tags.values():
            raise ValueError(f"tag {tag} is not known")


class Line(pydantic.BaseModel):
    text: Literal["short", "long"]
    counts: dict[str, int] = {}

    @pydantic.model_validator(mode="after")
    def _check(self) -> Line:
        for name in self.counts:
            raise ValueError(f"{name} cannot be counted")
        return self


service = Service("test")


@service.post("/plain")
def plain(
    number: int,
    text: str = "",
    choice: Literal["a", "b"] = "a",
    items: list[float] | None = None,
    point: Point | None = None,
) -> None: ...


@service.post("/modelled")
def modelled(line: Line, lines: list[Line] | None = None, number: int = 0) -> None: ...


FIELDS = ("number", "text", "choice", "items", "point", "line", "lines", "x", "tags", "counts")

leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from([CANARY, "a", "short"])
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from([*FIELDS, CANARY]), inner, max_size=4)
    ),
    max_leaves=8,
)


def decoded(endpoint: Endpoint, payload: bytes) -> tuple[dict[str, Any], InvalidInput | None]:
    try:
        return endpoint.decode(payload), None
    except InvalidInput as refusal:
        return {}, refusal


payloads = st.dictionaries(st.sampled_from(FIELDS), values, max_size=6)


@unhurried
@given(payloads)
@example({"number": 1, "point": {"x": 1, "tags": {"a": CANARY}}})
@example({"line": {"text": "short", "counts": {CANARY: 1}}})
@example({"line": {"text": CANARY}})
@example({"line": {"text": "short", "counts": {CANARY: CANARY}}})
@example({"number": 1, "choice": CANARY})
def test_any_object_is_read_or_refused_by_named_fields_and_never_quoted(
    payload: dict[str, Any],
) -> None:
    encoded = msgspec.json.encode(payload)
    for endpoint in service.endpoints.values():
        arguments, refusal = decoded(endpoint, encoded)
        if refusal is not None:
            assert refusal.issues
            for issue in refusal.issues:
                assert issue.field.partition(".")[0].partition("[")[0] in {*FIELDS, "payload"}
            assert CANARY not in str(refusal)
        else:
            for name in payload.keys() & {"number", "text", "choice", "items"}:
                assert arguments[name] == payload[name]
            assert payload.keys() <= arguments.keys()


@unhurried
@given(st.binary(max_size=60) | payloads.map(lambda p: msgspec.json.encode(p)[:-1]))
@example(b'{"number":1e400}')
@example(b'{"number":"\xff"}')
@example(b'{"number":"\\ud800"}')
@example(b'{"line":{"text":"\xff"}}')
def test_any_bytes_are_read_or_refused(payload: bytes) -> None:
    for endpoint in service.endpoints.values():
        _, refusal = decoded(endpoint, payload)
        assert refusal is None or refusal.issues


@unhurried
@given(
    st.fixed_dictionaries(
        {"number": st.integers()},
        optional={
            "text": st.text(),
            "choice": st.sampled_from(["a", "b"]),
            "items": st.none() | st.lists(st.floats(allow_nan=False, allow_infinity=False)),
        },
    )
)
def test_what_fits_comes_back_as_it_was_sent(payload: dict[str, Any]) -> None:
    defaults = {"text": "", "choice": "a", "items": None, "point": None}
    arguments = service.endpoints["post__plain"].decode(msgspec.json.encode(payload))
    assert arguments == defaults | payload
