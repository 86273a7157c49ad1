"""The site of the documentation: every page is in it, and every route."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.docs_site import api_pages, sources
from scripts.docs_site.__main__ import build
from tests.markdown import pages


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "source"
    sources.write(folder, api_pages.write(folder))
    return folder


@pytest.mark.slow
def test_sphinx_finds_nothing_to_warn_of(tmp_path: Path) -> None:
    assert build(tmp_path, builder="dummy") == 0


def test_the_navigation_has_every_page_of_the_documentation(source: Path) -> None:
    index = (source / "index.md").read_text()
    decisions = (source / "adr" / "README.md").read_text()
    listed = {
        *index[index.index("```{toctree}") :].splitlines(),
        *(f"adr/{line}" for line in decisions[decisions.index("```{toctree}") :].splitlines()),
    }
    names = {page.name.removeprefix("docs/").removesuffix(".md") for page in pages("docs")}
    assert names - {"index"} <= listed


def test_every_route_is_in_the_reference_with_its_parameters_and_bodies(source: Path) -> None:
    reference = "\n".join(page.read_text() for page in (source / "reference/api").glob("*.md"))
    described = api_pages.document()
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            assert f"## `{method.upper()} {path}`" in reference
            assert all(f"| `{each['name']}`" in reference for each in operation["parameters"])
    for schema in described["components"]["schemas"].values():
        for field in schema.get("properties", {}):
            assert f"| `{field}` |" in reference, field
