"""Which test runs which code of the documentation.

Every fenced block of a kind that can be run is in this ledger, with the file that runs it as it
stands on its page: only addresses, ports, ids and folders are those of the run. JSON and TOML are
parsed besides, wherever they stand. ``tests/unit/test_documented_blocks.py`` compares this with the
pages: a block that is added fails there until somebody runs it and says so here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tests.markdown import REPOSITORY, Page, pages

RUN = {"sh", "python", "sql", "javascript", "ts", "promql", "toml"}
"""Kinds of blocks that some test has to run."""

PARSED = {"json"}
SHOWN = {"", "text", "text sample", "mermaid", "yaml"}
"""What people read: output, drawings, the configuration of other programs."""


@dataclass(frozen=True)
class Ran:
    """So many blocks of a kind on a page, and the file that runs them."""

    page: str
    kind: str
    count: int
    by: str


_COMMANDS = "tests/e2e/test_documented_commands.py"
_PROGRAMS = "tests/e2e/test_documented_programs.py"
_CURL = "tests/e2e/test_curl_guide.py"
_ECHO = "tests/echo_product.py"  # which tests/e2e/test_add_an_api.py runs
_DATABASE = "tests/e2e/test_documented_database.py"
_SETTINGS = "tests/unit/test_documented_settings.py"
_RECEIPTS = "tests/cli/test_documented_receipts.py"
_REFERENCES = "tests/products/test_documented_references.py"
_WEBHOOKS = "tests/e2e/test_webhook_commands.py"
_TYPESCRIPT = "tests/typescript/documentation.py"

LEDGER = (
    Ran("README.md", "sh", 4, _COMMANDS),
    Ran("README.md", "python", 1, "tests/unit/test_docs.py"),  # it is an example, which is run
    Ran("clients/typescript/README.md", "ts", 1, _TYPESCRIPT),
    Ran("packages/codegraph/README.md", "sh", 1, "packages/codegraph/tests/test_readme.py"),
    Ran("packages/codegraph/README.md", "python", 3, "packages/codegraph/tests/test_readme.py"),
    Ran("docs/tutorial/first-service.md", "sh", 8, _COMMANDS),
    Ran("docs/tutorial/first-service.md", "python", 3, _COMMANDS),
    Ran("docs/how-to/add-an-api.md", "sh", 4, _ECHO),
    Ran("docs/how-to/add-an-api.md", "python", 4, _ECHO),
    Ran("docs/how-to/add-an-api.md", "toml", 1, _ECHO),
    Ran("docs/how-to/analyse-code.md", "sh", 8, _CURL),
    Ran("docs/how-to/bill-with-stripe.md", "sh", 2, _SETTINGS),
    Ran("docs/how-to/collect-results-over-http.md", "sh", 9, _CURL),
    Ran("docs/how-to/delay-and-deadlines.md", "python", 2, _PROGRAMS),
    Ran("docs/how-to/isolate-a-handler.md", "python", 2, _PROGRAMS),
    Ran("docs/how-to/limit-concurrency.md", "python", 2, _PROGRAMS),
    Ran("docs/how-to/manage-api-keys.md", "sh", 5, "tests/e2e/test_up_key.py"),
    Ran("docs/how-to/operate-postgresql.md", "sh", 1, _DATABASE),
    Ran("docs/how-to/operate-postgresql.md", "sql", 5, _DATABASE),
    Ran("docs/how-to/queue-chats.md", "sh", 1, _SETTINGS),
    Ran("docs/how-to/queue-chats.md", "sh", 5, "tests/products/llm/test_guide.py"),
    Ran("docs/how-to/register-an-http-service.md", "sh", 3, _COMMANDS),
    Ran("docs/how-to/retry-and-fail.md", "python", 2, _PROGRAMS),
    Ran("docs/how-to/run-a-batch.md", "sh", 10, _CURL),
    Ran("docs/how-to/run-functions-on-a-remote.md", "sh", 3, _COMMANDS),
    Ran("docs/how-to/run-functions-on-a-remote.md", "sh", 1, _SETTINGS),
    Ran("docs/how-to/run-in-production.md", "sh", 2, "tests/e2e/test_secret_commands.py"),
    Ran("docs/how-to/scrape.md", "sh", 3, "tests/e2e/test_scrape_guide.py"),
    Ran("docs/how-to/scrape.md", "python", 1, _REFERENCES),
    Ran("docs/how-to/speak.md", "sh", 2, _SETTINGS),
    Ran("docs/how-to/speak.md", "sh", 8, "tests/products/speech/test_guide.py"),
    Ran("docs/how-to/trace.md", "sh", 3, _COMMANDS),
    Ran("docs/how-to/use-jwts.md", "sh", 2, _COMMANDS),
    Ran("docs/how-to/use-jwts.md", "python", 1, "tests/http/auth/test_documented_tokens.py"),
    Ran("docs/how-to/use-the-command-line.md", "sh", 10, "tests/cli/test_guide.py"),
    Ran("docs/how-to/use-the-command-line.md", "python", 1, "tests/cli/test_guide.py"),
    Ran("docs/how-to/use-the-command-line.md", "toml", 1, "tests/cli/test_guide.py"),
    Ran("docs/how-to/use-the-python-client.md", "sh", 2, _COMMANDS),
    Ran("docs/how-to/use-the-python-client.md", "python", 4, "tests/client/test_examples.py"),
    Ran("docs/how-to/use-the-typescript-client.md", "sh", 2, _COMMANDS),
    Ran("docs/how-to/use-the-typescript-client.md", "sh", 2, _TYPESCRIPT),
    Ran("docs/how-to/use-the-typescript-client.md", "ts", 7, _TYPESCRIPT),
    Ran("docs/how-to/version-a-service.md", "sh", 1, _PROGRAMS),
    Ran("docs/how-to/version-a-service.md", "python", 2, _PROGRAMS),
    Ran("docs/how-to/webhooks.md", "sh", 11, _WEBHOOKS),
    Ran("docs/how-to/webhooks.md", "python", 1, _WEBHOOKS),
    Ran("docs/how-to/webhooks.md", "javascript", 1, _WEBHOOKS),
    Ran("docs/explanation/slos.md", "promql", 6, "tests/unit/test_metrics_docs.py"),
    Ran("docs/explanation/zero-retention.md", "sh", 1, _RECEIPTS),
    Ran("docs/reference/artifacts.md", "sh", 1, _RECEIPTS),
    Ran("docs/reference/cli.md", "toml", 1, _SETTINGS),
    Ran("docs/reference/client.md", "python", 1, _REFERENCES),
    Ran("docs/reference/dialects.md", "sh", 3, _CURL),
    Ran("docs/reference/engine.md", "python", 2, _REFERENCES),
    Ran("docs/reference/llm-passthrough.md", "sh", 1, "tests/products/llm/test_guide.py"),
    Ran("docs/reference/llm-passthrough.md", "python", 1, "tests/products/llm/test_guide.py"),
    Ran("docs/reference/products.md", "python", 1, "tests/e2e/test_products.py"),
    Ran("docs/reference/products.md", "toml", 1, "tests/e2e/test_products.py"),
    Ran("docs/reference/service.md", "python", 1, _REFERENCES),
)


def documentation() -> list[Page]:
    return [
        Page(REPOSITORY / "README.md"),
        Page(REPOSITORY / "clients/typescript/README.md"),
        Page(REPOSITORY / "packages/codegraph/README.md"),
        *pages("docs"),
    ]


def to_be_run(page: Page) -> Counter[str]:
    """How many blocks the page has of each kind that has to be run."""
    return Counter(block.info for block in page.blocks() if block.info in RUN)
