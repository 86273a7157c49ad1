"""Every code with which Coatcheck itself fails a job is declared, and so is in the reference."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from coatcheck.domain.failures import FailureCode
from scripts.reference.parts import load_everything
from tests.markdown import REPOSITORY

SRC = REPOSITORY / "src" / "coatcheck"
PLACE_OF_CODE = {
    "FailJob": None,
    "RetryLater": None,
    "JobPostponed": None,
    "RemoteError": None,
    "RemoteRefused": None,
    "RemoteFaulty": None,
    "RemoteUnreachable": None,
    "fail": None,
    "retry": None,
    "Failed": 0,
    "Retryable": 0,
    "Postponed": 0,
    "RemoteFailed": 0,
    "ListUnusable": 0,
    "_fail": 1,
    "Settlement": 2,
    "settle": 2,
}
"""What writes the code of a failure, and its positional argument that is the code, if any."""


def undeclared(source: str) -> Iterator[str]:
    """The codes that are written as a text, or as a constant that is no declared code."""
    tree = ast.parse(source)
    # An error of the HTTP API has its code in its class.
    of_classes = {
        id(each) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for each in node.body
    }
    for node in ast.walk(tree):
        match node:
            case ast.Assign() if id(node) in of_classes:
                continue
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if (
                name in PLACE_OF_CODE
            ):
                place = PLACE_OF_CODE[name]
                codes = [each.value for each in node.keywords if each.arg == "code"]
                if place is not None:
                    codes += node.args[place : place + 1]
            case (
                ast.Assign(targets=[ast.Name(id="code")])
                | ast.Assign(targets=[ast.Tuple(elts=[*_, ast.Name(id="code")])])
            ):
                codes = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
                codes = codes[-1:]
            case _:
                continue
        for code in codes:
            match code:
                case ast.Constant(value=str()) | ast.JoinedStr():
                    yield ast.unparse(code)
                case ast.Name(id=constant) if constant.isupper():
                    yield constant


@pytest.mark.parametrize(
    "package",
    ["core", "maintenance", "worker", "remotes", "products", "job.py", "domain/errors.py"],
)
def test_code_fails_jobs_with_declared_codes_only(package: str) -> None:
    found = SRC / package
    for path in [found] if found.is_file() else found.rglob("*.py"):
        assert list(undeclared(path.read_text())) == [], path


def test_a_text_in_place_of_a_declared_code_is_seen() -> None:
    for source in (
        'raise FailJob("why", code="mine")',
        'job.fail("why", code=f"mine_{status}")',
        'return Retryable("mine", "why")',
        'Settlement(job, event, "mine", "why")',
        "RetryLater('why', code=MINE)",
        'message, code = "why", f"mine_{status}"',
    ):
        assert len(list(undeclared(source))) == 1, source
    assert list(undeclared('FailJob("why", code=CoreFailure.TIMED_OUT)')) == []


def test_statements_fail_jobs_with_declared_codes_only() -> None:
    load_everything()
    declared = {each.value for kind in FailureCode.__subclasses__() for each in kind}
    written = set()
    for path in SRC.rglob("*.sql"):
        text = path.read_text()
        for value in re.findall(
            r"\berror_code = (CASE.*?\bEND\b|coalesce\(.*?\)|'\w+')", text, re.DOTALL
        ):
            written |= set(re.findall(r"(?:THEN|ELSE|^|coalesce\([\w.]+,)\s*'(\w+)'", value))
        written |= set(re.findall(r"'(\w+)' AS attempt_code", text))
    known = {"cancelled", "worker_lost", "max_retries_exhausted", "timed_out", "export_lost"}
    assert known | {"start_deadline_passed"} <= written
    assert written - declared == set()
