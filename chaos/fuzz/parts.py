"""The parts of the fuzz run: each is a selection of tests in its own pytest process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Part:
    """Tests to run with the run's number of examples."""

    name: str
    tests: Sequence[str]
    """Files and folders."""
    plugins: Sequence[str] = ()
    """Conftest modules to load as plugins, for fixtures of other folders."""


PARTS: Final[Sequence[Part]] = (
    Part("contract", ["tests/contract/test_schemathesis.py"]),
    Part("strangers", ["chaos/fuzz/test_strangers.py"], ["tests.conftest"]),
    Part("tenants", ["tests/contract/test_tenant_matrix.py"]),
    Part("odd requests", ["tests/contract/test_odd_refusals.py", "tests/contract/test_corners.py"]),
    Part("mutated requests", ["chaos/fuzz/test_mutated_requests.py"], ["tests.conftest"]),
    Part("archives", ["tests/archives", "tests/products/graphs/test_hostile.py"]),
    Part("mutated archives", ["chaos/fuzz/test_mutated_archives.py"], ["tests.conftest"]),
    Part("code", ["packages/codegraph/tests"]),
    Part(
        "urls",
        ["tests/egress", "tests/unit/test_egress_corpus.py", "tests/webhooks/test_egress.py"],
    ),
    Part("mutated urls", ["chaos/fuzz/test_mutated_urls.py"], ["tests.conftest"]),
    Part("values", ["tests/unit"]),
    Part("clients", ["tests/http/limits"]),
    Part("crowds", ["chaos/fuzz/test_crowds.py"], ["tests.conftest"]),
    Part("machines", ["tests/properties"]),
)
