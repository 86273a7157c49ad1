"""Manifests: what other languages' rules read of them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packages.codegraph.tests.graphs import parsed

NAMES = ["go.mod", "package.json", "tsconfig.json", "jsconfig.json", "Cargo.toml", "composer.json"]


def test_a_go_module_has_its_path() -> None:
    facts = parsed("x/go.mod", "// comment\nmodule example.org/thing/v2 // more\n\ngo 1.22\n")

    assert facts.properties == {"go.module": "example.org/thing/v2"}
    assert facts.language == "manifest"


def test_a_package_of_npm_has_its_name_and_entry_points() -> None:
    facts = parsed(
        "package.json",
        '{"name": "@a/b", "main": "./lib/i.js", "module": "i.mjs", "typings": "i.d.ts", "x": 1}',
    )

    assert facts.properties == {
        "npm.name": "@a/b",
        "npm.main": "./lib/i.js",
        "npm.module": "i.mjs",
        "npm.types": "i.d.ts",
    }


def test_a_tsconfig_may_have_comments_and_commas_too_many() -> None:
    facts = parsed(
        "tsconfig.json",
        '{ // here\n "compilerOptions": { /* , } */ "baseUrl": "./src//x", '
        '"paths": { "@/*": ["./a/*", "./b/*",], }, },\n}',
    )

    assert facts.properties["ts.baseUrl"] == "./src//x"
    assert json.loads(facts.properties["ts.paths"]) == {"@/*": ["./a/*", "./b/*"]}
    assert not facts.broken


def test_a_crate_has_the_name_and_place_of_its_library() -> None:
    plain = parsed("Cargo.toml", '[package]\nname = "a-b"\n')
    named = parsed("Cargo.toml", '[package]\nname = "a-b"\n[lib]\nname = "ab"\npath = "l.rs"\n')

    assert plain.properties == {"cargo.name": "a-b"}
    assert named.properties == {"cargo.name": "ab", "cargo.lib": "l.rs"}


def test_a_package_of_composer_has_its_namespaces() -> None:
    facts = parsed(
        "composer.json",
        '{"autoload": {"psr-4": {"A\\\\": "src/", "B\\\\": ["b/", 1]}},'
        ' "autoload-dev": {"psr-4": {"T\\\\": "tests/"}}}',
    )

    assert json.loads(facts.properties["composer.psr4"]) == {
        "A\\": ["src/"],
        "B\\": ["b/"],
        "T\\": ["tests/"],
    }


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "content",
    [b"", b"[" * 100_000, b"\xff\xfe\x00", b"{", b"[]", b"1" * 10_000, b'"' * 99, b"/*" * 50_000],
)
def test_hostile_content_is_broken_and_never_an_error(name: str, content: bytes) -> None:
    facts = parsed(name, content)

    assert facts.broken or facts.properties == {}


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(content=st.one_of(st.binary(max_size=200), st.text('{}[]",:/*\\ \nnamepths', max_size=80)))
def test_no_content_makes_the_reading_fail(name: str, content: bytes | str) -> None:
    assert parsed(name, content).path == name


def test_values_of_the_wrong_kind_are_left_out() -> None:
    facts = parsed("package.json", '{"name": {"x": 1}, "main": 3, "module": null}')

    assert facts.properties == {}
