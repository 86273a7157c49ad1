"""The documentation says what is so: its links lead somewhere, its code and its names exist."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from collections.abc import Iterator
from urllib.parse import unquote

import pytest
import typer.main
from typer.core import TyperGroup

import coatcheck
from coatcheck.cli.app import LazyCommand, app
from coatcheck.settings import SETTINGS
from coatcheck.settings.settings import NOT_SETTINGS
from tests.markdown import REPOSITORY, Page, pages

README = Page(REPOSITORY / "README.md")
FIRST_SCREEN_LINES = 40
FIRST_JOB = "examples/hello.py"

PUBLIC = [
    "ApiError",
    "Artifact",
    "AsyncClient",
    "AuthenticationError",
    "BatchFailed",
    "Client",
    "ClientError",
    "CoatcheckError",
    "ConcurrencyLimit",
    "ConflictError",
    "ConnectionFailed",
    "Engine",
    "ExportFailed",
    "FailJob",
    "InvalidRequestError",
    "Job",
    "JobAlreadyEnded",
    "JobCancelled",
    "JobEvent",
    "JobFailed",
    "JobNotFound",
    "JobView",
    "Lane",
    "NotFoundError",
    "PaymentRequiredError",
    "PermissionDeniedError",
    "RateLimitedError",
    "RetryLater",
    "ServerError",
    "Service",
    "Settings",
    "State",
    "Submission",
    "TargetUnreachable",
    "Ticket",
    "UnexpectedAnswer",
    "WaitTimeout",
    "__version__",
]

every_page = pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)


@every_page
def test_every_relative_link_resolves(page: Page) -> None:
    broken = [link for link in page.links() if not _resolves(page, link)]
    assert broken == []


def _resolves(page: Page, link: str) -> bool:
    if re.match(r"[a-z]+:", link):
        return True  # an address on the network: not ours to keep
    target, _, anchor = link.partition("#")
    path = (page.path.parent / unquote(target)).resolve() if target else page.path
    if not path.exists():
        return False
    return not anchor or path.suffix != ".md" or anchor in Page(path).anchors()


@every_page
def test_every_python_block_compiles(page: Page) -> None:
    for block in page.blocks("python"):
        compile(block.text, page.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@every_page
def test_every_command_exists_with_its_options(page: Page) -> None:
    commands = typer.main.get_command(app)
    assert isinstance(commands, TyperGroup)
    for words in _command_lines(page):
        if words[0] == "make":
            goals = [word for word in words[1:] if "=" not in word]
            assert set(goals) <= _make_targets(), words
        elif words[0].endswith("coatcheck"):
            named = [word for word in words[1:] if not word.startswith("-")]
            assert named[0] in commands.commands, words
            command = commands.commands[named[0]]
            assert isinstance(command, LazyCommand)
            command = command.load()
            if isinstance(command, TyperGroup):
                assert named[1] in command.commands, words
                command = command.commands[named[1]]
            known = {
                option
                for parameter in command.params + commands.params
                for option in parameter.opts
            }
            assert {word for word in words if word.startswith("--")} <= known, words


def _command_lines(page: Page) -> Iterator[list[str]]:
    """The simple commands of the page's shell blocks, without what assigns and redirects."""
    for block in page.blocks("sh"):
        for line in block.text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            while words and re.match(r"[A-Z_]+=", words[0]):
                words = words[1:]
            if words:
                yield words


def _make_targets() -> set[str]:
    makefile = (REPOSITORY / "Makefile").read_text()
    return set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


def test_the_first_screen_of_the_readme_shows_the_two_commands() -> None:
    first_screen = README.text.splitlines()[:FIRST_SCREEN_LINES]
    assert "make up" in first_screen
    assert "make test" in first_screen


def test_the_first_job_of_the_readme_is_the_example_that_is_run() -> None:
    blocks = README.blocks("python")
    assert blocks[0].text == (REPOSITORY / FIRST_JOB).read_text()
    assert FIRST_JOB in README.links()


def test_the_public_names_are_these() -> None:
    assert sorted(coatcheck.__all__) == PUBLIC
    assert coatcheck.__all__ == sorted(coatcheck.__all__)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_says_what_it_is(name: str) -> None:
    public = getattr(coatcheck, name)
    if inspect.isclass(public):
        # Its own words, not those it inherits or that a dataclass makes up.
        written = vars(public).get("__doc__")
        assert written, f"{name} has no docstring"
        assert not written.startswith(f"{name}("), f"{name} has no docstring"


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_in_the_reference(name: str) -> None:
    reference = "\n".join(page.text for page in pages("docs/reference"))
    assert re.search(rf"`{re.escape(name)}\b", reference)


@pytest.mark.parametrize(
    "public",
    [coatcheck.AsyncClient, coatcheck.Client, coatcheck.Engine, coatcheck.Job, coatcheck.Service],
)
def test_every_public_method_is_in_the_reference(public: type) -> None:
    reference = "\n".join(page.text for page in pages("docs/reference"))
    for name, member in inspect.getmembers(public):
        if name.startswith("_") or not (callable(member) or isinstance(member, property)):
            continue
        if (inspect.getdoc(member) or "").startswith("For the worker"):
            continue
        assert re.search(rf"`[\w.]*\b{name}\b", reference), f"{public.__name__}.{name}"


def test_every_field_of_a_submission_and_of_a_job_is_in_the_reference() -> None:
    reference = (REPOSITORY / "docs/reference/engine.md").read_text()
    for public in (coatcheck.Submission, coatcheck.Ticket, coatcheck.JobView, coatcheck.Artifact):
        for name in inspect.get_annotations(public):
            assert f"`{name}`" in reference, f"{public.__name__}.{name}"


@every_page
def test_every_setting_that_is_named_exists(page: Page) -> None:
    known = {setting.variable for setting in SETTINGS.values()} | NOT_SETTINGS
    named = set(re.findall(r"COATCHECK_[A-Z_]*[A-Z]", page.text))
    assert named - known == set()


def test_no_page_is_out_of_reach() -> None:
    """Whoever starts at the README finds every page by following links."""
    found: set[Page] = set()
    ahead = [README]
    while ahead:
        page = ahead.pop()
        found.add(page)
        for link in page.links():
            target = (page.path.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target.exists() and Page(target) not in found:
                ahead.append(Page(target))
    assert {page.name for page in pages("docs")} - {page.name for page in found} == set()


def test_every_decision_is_in_the_index_with_its_status() -> None:
    index = (REPOSITORY / "docs/adr/README.md").read_text()
    decisions = [page for page in pages("docs/adr") if page.path.name != "README.md"]
    assert decisions
    for page in decisions:
        status = re.search(r"^Status: (\w+)", page.text, re.MULTILINE)
        assert status, f"{page.name} has no status"
        row = next((line for line in index.splitlines() if page.path.name in line), "")
        assert status[1] in row, f"{page.name} is not in the index as {status[1]}"
