"""Versions of a service, the names kept for Coatcheck, and what the catalogue is told."""

from __future__ import annotations

import sys
from datetime import datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NewType
from uuid import UUID

import pydantic
import pytest
from msgspec import Meta

from coatcheck import Job, Service
from coatcheck.domain.errors import SettingsInvalid
from coatcheck.service import load_services
from coatcheck.service.signature import parameter_kind


def test_the_first_version_keeps_the_names_it_always_had() -> None:
    docs = Service("docs")

    @docs.post("/analyze")
    async def analyze() -> None: ...

    assert docs.version == 1
    assert docs.endpoints["post__analyze"].name == "docs.post__analyze"
    assert docs.endpoints["post__analyze"].spec.id == "docs.v1.post__analyze"


def test_a_later_version_is_in_the_names_of_its_endpoints() -> None:
    docs = Service("docs", version=2)

    @docs.post("/analyze")
    async def analyze() -> None: ...

    endpoint = docs.endpoints["post__analyze"]
    assert endpoint.name == "docs.v2.post__analyze"
    assert endpoint.spec.engine_endpoint == endpoint.name
    assert endpoint.spec.queue_key == ""


@pytest.mark.parametrize("version", [0, -1, 10_000])
def test_a_version_out_of_bounds_is_refused(version: int) -> None:
    with pytest.raises(ValueError, match="version must be from 1 to 9999"):
        Service("docs", version)


def test_a_version_is_a_whole_number() -> None:
    with pytest.raises(TypeError, match="version must be a whole number"):
        Service("docs", "2")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "product"),
    [
        ("gateway", "gateway"),
        ("Gateway", "gateway"),
        ("graphs", "graphs"),
        ("scrape", "scrape"),
        ("coatcheck", "graphs"),
        ("coatcheck-tools", "graphs"),
    ],
)
def test_names_of_products_services_are_for_their_product_alone(name: str, product: str) -> None:
    with pytest.raises(ValueError, match="reserved for Coatcheck itself"):
        Service(name)
    assert Service(name, product=product).name == name


@pytest.mark.parametrize("name", ["docs", "gateway"])
def test_a_product_has_only_the_services_of_its_entry_points(name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}' is not a service of the product 'graphs'"):
        Service(name, product="graphs")


def test_two_versions_of_a_service_are_loaded_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "two_versions.py").write_text(
        "from coatcheck import Service\n"
        "one, two = Service('docs'), Service('docs', version=2)\n"
        "again = Service('docs', version=2)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    services = load_services(["two_versions:one", "two_versions:two"])
    assert [(service.name, service.version) for service in services] == [("docs", 1), ("docs", 2)]
    with pytest.raises(SettingsInvalid, match="two services with the same name"):
        load_services(["two_versions:two", "two_versions:again"])


def test_the_catalogue_is_told_what_the_declaration_says() -> None:
    docs = Service("docs", version=3)

    @docs.get(
        "/pages/{page}",
        lane="bulk",
        timeout=20,
        retries=1,
        keep_completed=60,
        keep_failed=120,
        async_eligible=False,
        auth="service_token",
        sync_timeout=5,
    )
    async def read(job: Job, page: int, full: bool = False) -> None: ...

    (spec,) = docs.spec.endpoints
    assert docs.spec.version == 3
    assert (spec.method, spec.path, spec.lane.value) == ("GET", "/pages/{page}", "bulk")
    assert (spec.timeout_seconds, spec.sync_timeout_seconds, spec.retries) == (20.0, 5.0, 1)
    assert (spec.keep_completed_seconds, spec.keep_failed_seconds) == (60.0, 120.0)
    assert (spec.async_eligible, spec.auth) == (False, "service_token")
    assert spec.parameters == {"page": "integer", "full": "boolean"}
    assert spec.target is None


def test_an_endpoint_is_for_the_platforms_users_and_waits_half_a_minute() -> None:
    docs = Service("docs")

    @docs.post("/analyze")
    async def analyze() -> None: ...

    endpoint = docs.endpoints["post__analyze"]
    assert (endpoint.spec.auth, endpoint.spec.sync_timeout_seconds) == ("platform", 30.0)


@pytest.mark.parametrize("seconds", [0, -1, 60.5, float("nan"), True])
def test_a_sync_timeout_out_of_bounds_is_refused(seconds: float) -> None:
    docs = Service("docs")
    with pytest.raises(ValueError, match=r"sync_timeout must be .* above 0 and at most"):

        @docs.post("/analyze", sync_timeout=seconds)
        async def analyze() -> None: ...


def test_an_unknown_way_to_be_called_is_refused() -> None:
    docs = Service("docs")
    with pytest.raises(ValueError, match="use one of platform, service_token, none"):

        @docs.post("/analyze", auth="nobody")  # type: ignore[arg-type]
        async def analyze() -> None: ...


def test_a_path_that_names_a_parameter_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="names a parameter twice"):
        Service("docs").get("/pages/{page}/{page}")


def test_two_templates_that_match_the_same_paths_are_refused() -> None:
    docs = Service("docs")

    @docs.get("/pages/{page}")
    async def read(page: int) -> None: ...

    with pytest.raises(ValueError, match="would match the same paths as GET /pages/"):

        @docs.get("/pages/{name}")
        async def read_named(name: str) -> None: ...

    @docs.delete("/pages/{name}")
    async def delete(name: str) -> None: ...


class Colour(Enum):
    RED = "red"


class Size(Enum):
    SMALL = 1


class Page(pydantic.BaseModel):
    number: int


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        (int, "integer"),
        (float, "number"),
        (bool, "boolean"),
        (str, "string"),
        (int | None, "integer"),
        (int | float, "number"),
        (int | str, "other"),
        (Annotated[int, Meta(ge=1)], "integer"),
        (Annotated[int | None, Meta(ge=1)], "integer"),
        (Annotated[int, pydantic.Field(ge=1)], "integer"),
        (Literal["a", "b"], "string"),
        (Literal[1, 2, None], "integer"),
        (Literal[True, "auto"], "other"),
        (Colour, "string"),
        (Size, "integer"),
        (NewType("Number", int), "integer"),
        (datetime, "string"),
        (UUID, "string"),
        (Decimal, "string"),
        (list[int], "other"),
        (dict[str, int], "other"),
        (Page, "other"),
        (None, "other"),
        (Any, "other"),
    ],
)
def test_the_kind_of_an_argument_is_that_of_its_json_value(annotation: Any, kind: str) -> None:
    assert parameter_kind(annotation) == kind
