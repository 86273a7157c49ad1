"""The OpenAPI document of a server as a judge of its answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import httpx2
from jsonschema import Draft202012Validator

_PARAMETER = re.compile(r"\{[^{}]+\}")


class Document:
    """Says whether an answer is one that the document describes."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._paths = [
            (re.compile(_PARAMETER.sub("[^/]+", path)), path) for path in document["paths"]
        ]
        self._wide = [  # `{path}` of the gateway may have slashes
            (re.compile(_PARAMETER.sub(".+", path)), path) for path in document["paths"]
        ]
        self.validator = cache(self._validator)

    def operation(self, method: str, path: str) -> tuple[str, Mapping[str, Any]]:
        """The documented path that a request's path belongs to, and its operation."""
        for choices in (self._paths, self._wide):
            fitting = [
                template
                for pattern, template in choices
                if pattern.fullmatch(path) and method.lower() in self._document["paths"][template]
            ]
            if fitting:
                found = max(fitting, key=lambda each: len(_PARAMETER.sub("", each)))
                return found, self._document["paths"][found][method.lower()]
        raise AssertionError(f"the document has no {method} {path}")

    def is_read(self, path: str) -> bool:
        """Whether there is something to get."""
        return any(
            pattern.fullmatch(path) and "get" in self._document["paths"][template]
            for pattern, template in self._paths
        )

    def check(self, method: str, answer: httpx2.Response) -> None:
        """Fails unless the document has this status, type and body for the request."""
        template, operation = self.operation(method, answer.request.url.path)
        where = f"{method} {template}: {answer.status_code} {answer.text[:500]}"
        assert str(answer.status_code) in operation["responses"], where
        described = operation["responses"][str(answer.status_code)]
        missing = {
            name
            for name in answer.headers
            if name in _CONTRACT and name not in {each.lower() for each in described["headers"]}
        }
        assert not missing, f"{where}: has {missing}, which the document does not"
        if not answer.content:
            return
        media_type = answer.headers["content-type"].partition(";")[0]
        if "*/*" in described.get("content", {}):
            return  # a file
        assert media_type in described.get("content", {}), where
        pointer = "/".join(
            part.replace("~", "~0").replace("/", "~1")
            for part in (
                "paths",
                template,
                method.lower(),
                "responses",
                str(answer.status_code),
                "content",
                media_type,
                "schema",
            )
        )
        if media_type.endswith("json"):
            errors = [*self.validator(f"#/{pointer}").iter_errors(answer.json())]
            assert not errors, f"{where}: {errors[0].message} at {errors[0].json_path}"

    def _validator(self, pointer: str) -> Draft202012Validator:
        return Draft202012Validator({"$ref": pointer, **self._document})


_CONTRACT = {"idempotent-replayed", "idempotency-mismatch"}
"""Headers that a client acts on: where they are sent they are described."""
