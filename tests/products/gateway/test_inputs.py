"""What an endpoint is given: the body's fields, and those of the path and the query."""

from __future__ import annotations

import pytest

from tests.deployment import Deployment
from tests.products.gateway import paths
from tests.products.gateway.asking import problem

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_query_fields_are_read_as_the_signature_wants_them(shared: Deployment) -> None:
    answer = await shared.http.get(
        paths.call("/search"), params={"text": "7", "most": "7", "score": "7", "exact": "true"}
    )
    assert answer.text == '{"text":"7","most":7,"score":7.0,"exact":true}'


async def test_query_fields_may_be_left_out(shared: Deployment) -> None:
    answer = await shared.http.get(paths.call("/search"))
    assert answer.json() == {"text": "", "most": None, "score": 0.5, "exact": False}


async def test_a_query_is_decoded(shared: Deployment) -> None:
    answer = await shared.http.get(paths.call("/search") + "?text=a+b%26c%3Dd%C3%A9")
    assert answer.json()["text"] == "a b&c=dé"


async def test_a_submit_takes_the_query_too(shared: Deployment) -> None:
    answer = await shared.http.post(
        paths.submit("/search") + "?most=3&wait=30", headers={"X-HSL-Target-Method": "GET"}
    )
    assert answer.json()["result_summary"]["most"] == 3


async def test_wait_is_a_synchronous_endpoints_own_field(shared: Deployment) -> None:
    answer = await shared.http.get(paths.call("/search"), params={"wait": "1"})
    assert "wait" in problem(answer, 422, "invalid_input")["detail"]


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("most", "many"),
        ("most", "1.5"),
        ("most", ""),
        ("score", "nan"),
        ("score", "inf"),
        ("score", "-Infinity"),
        ("score", "1e999"),
        ("exact", "maybe"),
    ],
)
async def test_a_query_field_of_the_wrong_kind_is_refused(
    shared: Deployment, field: str, text: str
) -> None:
    answer = await shared.http.get(paths.call("/search"), params={field: text})
    found = problem(answer, 400, "invalid_parameter")
    assert [(each["field"], each["location"]) for each in found["details"]] == [(field, "query")]


async def test_a_field_that_nobody_knows_is_refused(shared: Deployment) -> None:
    answer = await shared.http.get(paths.call("/search"), params={"colour": "red"})
    assert "colour" in problem(answer, 422, "invalid_input")["detail"]


@pytest.mark.parametrize(
    ("spelt", "meant"),
    [
        ("plain", "plain"),
        ("a%2Fb", "a/b"),
        ("a%2fb%2F", "a/b/"),
        ("%20", " "),
        ("a+b", "a+b"),
        ("%C3%A9", "é"),
        ("%25", "%"),
        ("%3Fq%23", "?q#"),
        ("..%2Fetc", "../etc"),
        ("async", "async"),
        ("%E2%9C%93.txt", "✓.txt"),
    ],
)
async def test_a_part_of_the_path_is_decoded_and_never_parted(
    shared: Deployment, spelt: str, meant: str
) -> None:
    answer = await shared.http.get(paths.call(f"/files/{spelt}"))
    assert (answer.status_code, answer.json()) == (200, meant)


@pytest.mark.parametrize("part", ["%FF", "%C3", "%ED%A0%80"])
async def test_a_part_of_the_path_that_is_no_text_is_refused(shared: Deployment, part: str) -> None:
    problem(await shared.http.get(paths.call(f"/files/{part}")), 400, "invalid_parameter")


@pytest.mark.parametrize("part", ["seven", "7.5", "%37x"])
async def test_a_part_of_the_path_of_the_wrong_kind_is_refused(
    shared: Deployment, part: str
) -> None:
    answer = await shared.http.get(paths.call(f"/items/{part}"))
    found = problem(answer, 400, "invalid_parameter")
    assert [(each["field"], each["location"]) for each in found["details"]] == [("item", "path")]


async def test_an_empty_body_is_an_empty_object(shared: Deployment) -> None:
    assert (await shared.http.post(paths.call("/process"))).json()["priority"] == "low"
    answer = await shared.http.post(paths.submit("/process"), params={"wait": "30"})
    assert answer.json()["status"] == "completed"


@pytest.mark.parametrize("body", [b"[1]", b'"text"', b"5", b"null"])
async def test_a_body_that_is_no_object_cannot_be_joined_with_a_query(
    shared: Deployment, body: bytes
) -> None:
    answer = await shared.http.post(
        paths.call("/process"), params={"priority": "high"}, content=body
    )
    problem(answer, 400, "invalid_body")


async def test_a_field_that_comes_twice_is_refused(shared: Deployment) -> None:
    twice = await shared.http.get(paths.call("/search") + "?most=1&most=2")
    problem(twice, 400, "invalid_parameter")
    both = await shared.http.put(paths.call("/items/5"), json={"item": 6})
    problem(both, 400, "invalid_parameter")
    both = await shared.http.post(paths.call("/process"), params={"data": "a"}, json={"data": "b"})
    problem(both, 400, "invalid_parameter")


@pytest.mark.parametrize("route", [paths.submit("/echo"), paths.call("/echo")])
@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"value": NaN}',
        b'{"value": Infinity}',
        b'{"value": 1e999}',
        b'{"value": "\\u0000"}',
        b'{"value": "\xff"}',
        b'{"value": ' + b"[" * 32 + b"]" * 32 + b"}",
        b"{'value': 1}",
        b"{} {}",
    ],
)
async def test_what_is_no_json_is_refused(shared: Deployment, route: str, body: bytes) -> None:
    answer = await shared.http.post(
        route, content=body, headers={"Content-Type": "application/json"}
    )
    problem(answer, 400, "invalid_body")


async def test_a_body_may_nest_31_levels_below_its_field(shared: Deployment) -> None:
    value = b"[" * 31 + b"]" * 31
    answer = await shared.http.post(
        paths.call("/echo"),
        content=b'{"value":' + value + b"}",
        headers={"Content-Type": "application/json"},
    )
    assert (answer.status_code, answer.content) == (200, value)


async def test_other_types_and_codings_are_not_taken(shared: Deployment) -> None:
    for headers in (
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/json; charset=latin-1"},
        {"Content-Type": "application/json", "Content-Encoding": "br"},
    ):
        answer = await shared.http.post(paths.submit("/process"), content=b"{}", headers=headers)
        assert answer.status_code == 415
    for media_type in ("application/json; charset=utf-8", "application/vnd.any+json"):
        answer = await shared.http.post(
            paths.submit("/process"), content=b"{}", headers={"Content-Type": media_type}
        )
        assert answer.status_code == 202


async def test_a_body_of_more_than_a_mebibyte_is_not_taken(shared: Deployment) -> None:
    fits = b'{"value":"%s"}' % (b"x" * (1024 * 1024 - 12))
    for body, status in ((fits, 202), (fits + b" ", 413)):
        answer = await shared.http.post(
            paths.submit("/echo"), content=body, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == status
