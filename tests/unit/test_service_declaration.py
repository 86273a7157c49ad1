"""What a declaration makes of a function, and which mistakes it refuses."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest

from coatcheck.domain.lanes import Lane
from coatcheck.job import Job
from coatcheck.service import Service


async def analyze(job: Job, content: str, analysis_type: str = "entities") -> dict[str, str]:
    return {"content": content, "type": analysis_type}


def count(content: str) -> int:
    return len(content)


class Outer:
    @staticmethod
    def within(content: str) -> str:
        return content


def test_an_endpoint_holds_what_was_declared_and_defaults_for_the_rest() -> None:
    docs = Service("docs")
    docs.post("/analyze")(analyze)
    endpoint = docs.endpoints["post__analyze"]
    spec = endpoint.spec
    assert (spec.service, spec.key, endpoint.name) == (
        "docs",
        "post__analyze",
        "docs.post__analyze",
    )
    assert (spec.method, spec.path, spec.lane) == ("POST", "/analyze", Lane.STANDARD)
    assert spec.timeout_seconds == 300.0
    assert spec.retries is None
    assert spec.concurrency is None
    assert spec.keep_completed_seconds is None
    assert spec.keep_failed_seconds is None
    assert spec.async_eligible
    assert endpoint.function is analyze
    assert endpoint.job_parameter == "job"


def test_every_option_reaches_the_endpoint() -> None:
    docs = Service("docs")
    docs.put(
        "/count",
        lane="bulk",
        timeout=5,
        retries=0,
        isolated=True,
        memory_mb=512,
        cpu_seconds=10,
        concurrency=3,
        keep_completed=0,
        keep_failed=60.5,
        async_eligible=False,
    )(count)
    endpoint = docs.endpoints["put__count"]
    spec = endpoint.spec
    assert spec.lane is Lane.BULK
    assert spec.timeout_seconds == 5.0
    assert spec.retries == 0
    assert endpoint.kind == "isolated"
    assert (endpoint.memory_mb, endpoint.cpu_seconds, spec.concurrency) == (512, 10, 3)
    assert (spec.keep_completed_seconds, spec.keep_failed_seconds) == (0.0, 60.5)
    assert not spec.async_eligible
    assert endpoint.job_parameter is None


def test_the_decorator_returns_the_function_unchanged() -> None:
    assert Service("docs").get("/count")(count) is count


@pytest.mark.parametrize("method", ["post", "get", "put", "patch", "delete"])
def test_each_method_declares_an_endpoint_of_its_name(method: str) -> None:
    docs = Service("docs")
    getattr(docs, method)("/count")(count)
    (spec,) = docs.spec.endpoints
    assert (spec.key, spec.method) == (f"{method}__count", method.upper())


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("/analyze", "post__analyze"),
        ("/v1/graphs/call-graph", "post__v1_graphs_call_graph"),
        ("/files/{content}/lines", "post__files_content_lines"),
        ("/a.b~c", "post__a_b_c"),
        ("/", "post__"),
    ],
)
def test_a_key_is_the_method_and_the_path_in_letters_and_digits(path: str, key: str) -> None:
    docs = Service("docs")
    docs.post(path)(count)
    assert list(docs.endpoints) == [key]


def test_async_functions_run_inline_plain_ones_in_threads_and_isolated_ones_apart() -> None:
    docs = Service("docs")
    docs.post("/a")(analyze)
    docs.post("/b")(count)
    docs.post("/c", isolated=True)(count)
    docs.post("/d", isolated=True)(analyze)
    docs.post("/e", isolated=True)(Outer.within)
    assert [endpoint.kind for endpoint in docs.endpoints.values()] == [
        "inline",
        "thread",
        "isolated",
        "isolated",
        "isolated",
    ]


def test_a_wrapped_function_keeps_the_signature_of_what_it_wraps() -> None:
    @functools.wraps(analyze)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return await analyze(*args, **kwargs)

    docs = Service("docs")
    docs.post("/a")(wrapper)
    endpoint = docs.endpoints["post__a"]
    assert endpoint.job_parameter == "job"
    assert endpoint.decode(b'{"content":"x"}') == {"content": "x", "analysis_type": "entities"}


def test_a_bound_method_can_be_an_endpoint() -> None:
    class Counter:
        def count(self, content: str) -> int:
            return len(content)

    docs = Service("docs")
    docs.post("/a")(Counter().count)
    assert docs.endpoints["post__a"].decode(b'{"content":"x"}') == {"content": "x"}


def test_endpoints_cannot_be_changed_from_outside() -> None:
    docs = Service("docs")
    docs.post("/a")(count)
    with pytest.raises(TypeError):
        docs.endpoints["post__b"] = docs.endpoints["post__a"]  # type: ignore[index]
    with pytest.raises(AttributeError):
        docs.endpoints["post__a"].name = "docs.b"  # type: ignore[misc]


def test_two_endpoints_of_one_key_are_refused_and_the_first_is_named() -> None:
    docs = Service("docs")
    docs.post("/call-graph")(count)
    with pytest.raises(ValueError, match=r"docs\.post__call_graph, which POST /call-graph already"):
        docs.post("/call/graph")(count)


@pytest.mark.parametrize("name", ["", "a.b", "1st", "with space", "x" * 64, "a/b", "é"])
def test_a_service_name_that_cannot_be_part_of_a_path_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a valid service name"):
        Service(name)


@pytest.mark.parametrize(
    "path", ["", "analyze", "/a b", "/a?b", "/a#b", "//a", "/a/", "/{}", "/{1}", "/a/{b", "/é"]
)
def test_a_bad_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="is not a valid path"):
        Service("docs").post(path)


def test_a_path_parameter_that_the_function_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\{file_id\}, but count has no such parameter"):
        Service("docs").post("/files/{file_id}")(count)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lane": "express"}, "'express' is not a lane; use one of urgent, standard, bulk"),
        ({"timeout": 0}, "timeout must be a number of seconds above 0"),
        ({"timeout": -1}, "timeout must be a number of seconds above 0"),
        ({"timeout": float("nan")}, "timeout must be a number of seconds above 0"),
        ({"timeout": float("inf")}, "timeout must be a number of seconds above 0"),
        ({"timeout": True}, "timeout must be a number of seconds above 0"),
        ({"retries": -1}, "retries must be from 0 to"),
        ({"concurrency": 0}, "concurrency must be from 1 to"),
        ({"keep_completed": -1}, "keep_completed must be a number of seconds, 0 or more"),
        ({"keep_failed": float("nan")}, "keep_failed must be a number of seconds, 0 or more"),
        ({"isolated": True, "memory_mb": 1}, "memory_mb must be from 64 to"),
        ({"isolated": True, "cpu_seconds": 0}, "cpu_seconds must be from 1 to"),
        ({"memory_mb": 512}, "need isolated=True"),
        ({"cpu_seconds": 5}, "need isolated=True"),
    ],
)
def test_a_bad_value_of_an_option_is_refused(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Service("docs").post("/count", **options)(count)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retries": 1.5}, "retries must be a whole number"),
        ({"concurrency": True}, "concurrency must be a whole number"),
        ({"lanes": "bulk"}, "no option lanes; its options are lane, timeout"),
    ],
)
def test_a_bad_type_or_name_of_an_option_is_refused(options: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Service("docs").post("/count", **options)(count)


def test_a_nested_function_or_a_lambda_cannot_run_isolated() -> None:
    def nested(content: str) -> str:
        return content

    docs = Service("docs")
    with pytest.raises(TypeError, match="cannot run isolated"):
        docs.post("/a", isolated=True)(nested)
    with pytest.raises(TypeError, match="cannot run isolated"):
        docs.post("/b", isolated=True)(lambda content: content)
    with pytest.raises(TypeError, match="cannot run isolated"):
        docs.post("/c", isolated=True)("text".join)
    assert not docs.endpoints


def test_a_function_of_the_main_module_cannot_run_isolated() -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec("def handler(content): return content", namespace)
    with pytest.raises(TypeError, match="move it to a module"):
        Service("docs").post("/a", isolated=True)(namespace["handler"])


def test_generators_are_refused_with_a_hint_to_emit() -> None:
    def lines(content: str) -> Iterator[str]:
        yield content

    async def async_lines(content: str) -> AsyncIterator[str]:
        yield content

    docs = Service("docs")
    for function in (lines, async_lines):
        with pytest.raises(TypeError, match=r"job\.emit"):
            docs.post("/a")(function)


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match="an endpoint must be a function, not partial"):
        Service("docs").post("/a")(functools.partial(count, "x"))


def test_parameters_that_cannot_be_named_are_refused() -> None:
    def positional(content: str, /) -> None: ...
    def starred(*contents: str) -> None: ...
    def double_starred(**contents: str) -> None: ...

    docs = Service("docs")
    for function in (positional, starred, double_starred):
        with pytest.raises(TypeError, match="cannot be filled from named fields"):
            docs.post("/a")(function)


def test_two_job_parameters_are_refused() -> None:
    def handler(job: Job, other: Job) -> None: ...

    with pytest.raises(TypeError, match="only one parameter can be the Job"):
        Service("docs").post("/a")(handler)


def test_an_annotation_that_does_not_exist_is_refused_by_name() -> None:
    def handler(content: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TypeError, match="'Missing' is not defined where the function is declared"):
        Service("docs").post("/a")(handler)


class Opaque:
    pass


class Model(pydantic.BaseModel):
    number: int


class Mixed(msgspec.Struct):
    model: Model


@pytest.mark.parametrize("annotation", [Opaque, list[Opaque], Mixed, Path | Opaque])
def test_a_type_that_json_cannot_fill_is_refused_by_name(annotation: Any) -> None:
    def handler(content: Any) -> None: ...

    handler.__annotations__["content"] = annotation
    with pytest.raises(TypeError, match="content has a type that cannot be decoded from JSON"):
        Service("docs").post("/a")(handler)


def test_a_pydantic_field_as_default_is_refused_with_the_way_to_write_it() -> None:
    def handler(number: int = pydantic.Field(gt=1)) -> None: ...

    with pytest.raises(TypeError, match=r"number as Annotated\[type, Field"):
        Service("docs").post("/a")(handler)
