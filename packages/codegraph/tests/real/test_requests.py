"""Requests, read by hand: where its calls and imports lead, and which of them nobody can tell."""

from __future__ import annotations

import pytest

from packages.codegraph.tests.graphs import Seen, analysed_folder
from tests.corpus import package

SRC = "src/requests/"


@pytest.fixture(scope="module")
def requests() -> Seen:
    return analysed_folder(package("requests"))


CALLS = [
    # A function of a package, through a module that was imported from it.
    ("api.py:request", "sessions.py:Session.__init__", 58),
    # A method of what a with statement entered.
    ("api.py:request", "sessions.py:Session.request", 59),
    ("api.py:get", "api.py:request", 73),
    # Imported names.
    ("sessions.py:Session.__init__", "utils.py:default_headers", 394),
    ("sessions.py:Session.__init__", "hooks.py:default_hooks", 406),
    ("sessions.py:Session.prepare_request", "cookies.py:RequestsCookieJar", 475),
    ("sessions.py:Session.prepare_request", "models.py:PreparedRequest.__init__", 483),
    # A method of what a variable holds.
    ("sessions.py:Session.prepare_request", "models.py:PreparedRequest.prepare", 484),
    ("sessions.py:Session.prepare_request", "sessions.py:merge_hooks", 496),
    ("sessions.py:Session.request", "models.py:Request.__init__", 563),
    # Methods through self.
    ("sessions.py:Session.request", "sessions.py:Session.prepare_request", 575),
    ("sessions.py:Session.request", "sessions.py:Session.send", 589),
    ("sessions.py:Session.__exit__", "sessions.py:Session.close", 455),
    # Inherited from the mixin.
    ("sessions.py:Session.send", "sessions.py:SessionRedirectMixin.resolve_redirects", 723),
    ("sessions.py:Session.send", "hooks.py:dispatch_hook", 710),
    # A constructor that is inherited.
    ("sessions.py:Session.get_adapter", "exceptions.py:RequestException.__init__", 792),
    # Of a parameter: what is passed for it.
    ("sessions.py:SessionRedirectMixin.resolve_redirects", "models.py:Response.close", 196),
    # What a dictionary holds, and its values.
    ("sessions.py:Session.send", "adapters.py:HTTPAdapter.send", 703),
    ("sessions.py:Session.close", "adapters.py:HTTPAdapter.close", 797),
    ("sessions.py:session", "sessions.py:Session.__init__", 831),
    ("models.py:Request.__init__", "models.py:RequestHooksMixin.register_hook", 280),
    ("models.py:Request.prepare", "models.py:PreparedRequest.prepare", 298),
    ("models.py:PreparedRequest.prepare_url", "models.py:RequestEncodingMixin._encode_params", 473),
    ("models.py:PreparedRequest.prepare_url", "_internal_utils.py:to_native_string", 471),
    # A static method through self.
    (
        "models.py:PreparedRequest.prepare_url",
        "models.py:PreparedRequest._get_idna_encoded_host",
        452,
    ),
    (
        "models.py:PreparedRequest.prepare_headers",
        "structures.py:CaseInsensitiveDict.__init__",
        486,
    ),
    ("auth.py:HTTPProxyAuth.__call__", "auth.py:_basic_auth_str", 103),
    ("cookies.py:MockRequest.host", "cookies.py:MockRequest.get_host", 100),
]


@pytest.mark.parametrize(("caller", "callee", "line"), CALLS)
def test_a_call_leads_to_its_definition(
    requests: Seen, caller: str, callee: str, line: int
) -> None:
    assert (SRC + caller, SRC + callee, line) in requests.calls


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("src/requests/__init__.py", "src/requests/api.py"),
        ("src/requests/__init__.py", "src/requests/utils.py"),  # from . import packages, utils
        ("src/requests/__init__.py", "src/requests/packages.py"),
        ("src/requests/__init__.py", "src/requests/__version__.py"),
        ("src/requests/__init__.py", "urllib3.contrib"),
        ("src/requests/api.py", "src/requests/sessions.py"),
        ("src/requests/models.py", "src/requests/compat.py"),
        ("src/requests/models.py", "encodings.idna"),
        ("src/requests/models.py", "idna"),  # inside of a method
        ("src/requests/models.py", "urllib3.exceptions"),
        ("src/requests/sessions.py", "src/requests/models.py"),
        ("src/requests/sessions.py", "collections"),
        ("src/requests/cookies.py", "dummy_threading"),
        ("tests/test_requests.py", "src/requests/__init__.py"),
        ("tests/test_requests.py", "src/requests/auth.py"),
        ("tests/test_requests.py", "tests/compat.py"),
    ],
)
def test_an_import_leads_to_its_file_or_out_of_the_archive(
    requests: Seen, importer: str, imported: str
) -> None:
    assert (importer, imported) in requests.imports


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("sessions.py", 265),  # self.send(...): a mixin counts on what it will be mixed into
        ("sessions.py", 700),  # preferred_clock(): one of two, by platform
        ("hooks.py", 30),  # hook(...): an element
        ("models.py", 417),  # url.decode(...): of a parameter
        ("models.py", 433),  # parse_url(...): of another package
        ("structures.py", 88),  # super().__init__(): of dict
        ("cookies.py", 52),  # self._r.headers.get(...): of a parameter's attribute
    ],
)
def test_what_cannot_be_known_is_not_guessed(requests: Seen, path: str, line: int) -> None:
    assert not [
        call for call in requests.calls if call[0].split(":")[0] == SRC + path and call[2] == line
    ]


def test_classes_inherit_from_those_of_other_files(requests: Seen) -> None:
    assert {
        ("src/requests/models.py:PreparedRequest", "src/requests/models.py:RequestHooksMixin"),
        ("src/requests/sessions.py:Session", "src/requests/sessions.py:SessionRedirectMixin"),
        ("src/requests/auth.py:HTTPProxyAuth", "src/requests/auth.py:HTTPBasicAuth"),
        ("src/requests/adapters.py:HTTPAdapter", "src/requests/adapters.py:BaseAdapter"),
    } <= requests.inherits


def test_most_calls_that_stay_in_the_package_are_resolved(requests: Seen) -> None:
    assert requests.counts.total == sum(
        len(facts.calls) for facts in requests.resolution.project.files.values()
    )
    assert requests.counts.resolved_rate > 0.6
