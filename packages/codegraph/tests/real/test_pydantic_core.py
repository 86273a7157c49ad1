"""pydantic-core: a Python extension in Rust. What is asserted was read in its source."""

from __future__ import annotations

from functools import cache

from coatcheck_codegraph.project import Project
from packages.codegraph.tests.graphs import Seen, parsed, seen_in
from tests.corpus import package

VALIDATORS = "src/validators"
DATE = f"{VALIDATORS}/date.rs:DateValidator"
NULLABLE = f"{VALIDATORS}/nullable.rs:NullableValidator"
STATE = f"{VALIDATORS}/validation_state.rs:ValidationState"
GUARD = "src/recursion_guard.rs"
PATH = "src/lookup_key.rs:LookupPath"


@cache
def pydantic_core() -> Seen:
    folder = package("pydantic-core")
    paths = [folder / "Cargo.toml", *sorted(folder.rglob("*.rs"))]
    return seen_in(
        Project([parsed(path.relative_to(folder).as_posix(), path.read_bytes()) for path in paths])
    )


def test_calls_lead_to_the_functions_methods_and_macros_that_they_run() -> None:
    assert {
        (f"{NULLABLE}.build", f"{VALIDATORS}/mod.rs:build_validator", 27),
        (f"{NULLABLE}.build", NULLABLE, 29),
        (f"{VALIDATORS}/nullable.rs", "src/py_gc.rs:impl_py_gc_traverse!", 33),
        (f"{NULLABLE}.validate", "src/input/input_abstract.rs:Input.is_none", 42),
        (f"{DATE}.build", DATE, 31),
        (f"{DATE}.build", "src/build_tools.rs:is_strict", 32),
        (f"{DATE}.build", f"{VALIDATORS}/date.rs:DateConstraints.from_py", 33),
        (f"{DATE}.validate", f"{STATE}.strict_or", 48),
        (f"{DATE}.validate", "src/input/input_abstract.rs:Input.validate_date", 49),
        (f"{DATE}.validate", f"{STATE}.floor_exactness", 53),
        (f"{DATE}.validate", f"{VALIDATORS}/date.rs:date_from_datetime", 54),
        (f"{DATE}.validate", f"{DATE}.validate.check_constraint!", 77),
        (f"{DATE}.validate", f"{VALIDATORS}/datetime.rs:NowConstraint.utc_offset", 83),
        (f"{DATE}.validate", f"{VALIDATORS}/datetime.rs:NowOp.compare", 89),
        (f"{DATE}.validate", "src/errors/line_error.rs:ValError.new", 95),
        (
            f"{GUARD}:RecursionGuard.new",
            f"{GUARD}:ContainsRecursionState.access_recursion_state",
            33,
        ),
        (f"{GUARD}:RecursionGuard.new", f"{GUARD}:RecursionGuard", 42),
        (f"{GUARD}:RecursionState.insert", f"{GUARD}:RecursionStack.insert", 93),
        (f"{GUARD}:RecursionState.remove", f"{GUARD}:RecursionStack.remove", 129),
        (f"{STATE}.new", STATE, 34),
        (f"{STATE}.maybe_cached_str", "src/tools.rs:new_py_string", 93),
        (f"{PATH}.from_str", PATH, 350),
        (f"{PATH}.from_list", "src/lookup_key.rs:PathItem.from_py", 358),
        (f"{PATH}.from_list", "src/build_tools.rs:py_schema_err!", 362),
        (f"{PATH}.apply_error_loc", f"{PATH}.iter", 370),
        (
            f"{PATH}.apply_error_loc",
            "src/errors/line_error.rs:ValLineError.with_outer_location",
            371,
        ),
    } <= pydantic_core().calls


def test_imports_lead_to_where_the_name_is_declared_or_to_another_crate() -> None:
    assert {
        (f"{VALIDATORS}/nullable.rs", "pyo3"),
        (f"{VALIDATORS}/nullable.rs", "src/errors/line_error.rs"),  # by `pub use` of errors/mod.rs
        (f"{VALIDATORS}/nullable.rs", "src/input/input_abstract.rs"),
        (f"{VALIDATORS}/nullable.rs", "src/tools.rs"),
        (f"{VALIDATORS}/nullable.rs", f"{VALIDATORS}/validation_state.rs"),
        (f"{VALIDATORS}/date.rs", "speedate"),
        (f"{VALIDATORS}/date.rs", f"{VALIDATORS}/datetime.rs"),
        (f"{VALIDATORS}/mod.rs", f"{VALIDATORS}/date.rs"),  # mod date;
        (GUARD, "ahash"),
        (GUARD, "std"),
        ("tests/test.rs", f"{VALIDATORS}/mod.rs"),  # by the name of the library
    } <= pydantic_core().imports


def test_traits_are_inherited_from() -> None:
    assert {
        (NULLABLE, f"{VALIDATORS}/mod.rs:BuildValidator"),
        (NULLABLE, f"{VALIDATORS}/mod.rs:Validator"),
        (STATE, f"{GUARD}:ContainsRecursionState"),
    } <= pydantic_core().inherits


def test_what_leaves_the_crate_or_is_not_evident_is_not_resolved() -> None:
    calls = pydantic_core().calls
    lines = {(caller, line) for caller, _, line in calls}

    # py.None() of another crate
    assert (f"{NULLABLE}.validate", 43) not in lines
    # what the macro enum_dispatch makes of an enum
    assert (f"{NULLABLE}.validate", 44) not in lines
    # the parameters of a closure
    assert (f"{GUARD}:RecursionGuard.new", 34) not in lines
    assert (f"{GUARD}:RecursionGuard.new", 37) not in lines
    # unwrap_or() of a field that is an Option
    assert (f"{STATE}.strict_or", 64) not in lines
    # what a macro is given
    assert (f"{PATH}.from_str", "src/lookup_key.rs:PathItem", 350) not in calls


def test_most_calls_are_known_to_stay_or_to_leave() -> None:
    counts = pydantic_core().counts
    assert counts.resolved > 2_500
    assert counts.unresolved < counts.total / 5
