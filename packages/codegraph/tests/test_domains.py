"""The parts that code falls into, and what they are called."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from coatcheck_codegraph.domains import Domain, DomainFile, Link, find_domains

REPOSITORY = Path(__file__).resolve().parents[3]


def files(*paths: str) -> list[DomainFile]:
    return [DomainFile(path, []) for path in paths]


def together(*numbers: int, weight: float = 1.0) -> list[Link]:
    """Each of these files uses each other one."""
    return [Link(one, other, weight) for one in numbers for other in numbers if one != other]


def named(found: Iterable[Domain]) -> list[str]:
    return [domain.name for domain in found]


def project(folders: int, files_each: int) -> tuple[list[DomainFile], list[Link]]:
    """Folders whose files use each other, and now and then a file of the next folder."""
    code, links = [], []
    for folder in range(folders):
        first = folder * files_each
        for number in range(files_each):
            code.append(DomainFile(f"part_{folder}/file_{number}.py", [f"load_{number}", "Store"]))
            links.append(Link(first + number, first + (number + 1) % files_each, 2.0))
            links.append(Link(first + number, first, 1.0))
        links.append(Link(first, (first + files_each) % (folders * files_each), 1.0))
    return code, links


def test_files_that_use_each_other_are_a_domain_wherever_they_are() -> None:
    code = files("a/one.py", "b/two.py", "c/three.py", "a/four.py", "b/five.py", "c/six.py")
    links = [*together(0, 1, 2), *together(3, 4, 5), Link(5, 0, 1.0)]
    assert [domain.files for domain in find_domains(code, links)] == [(0, 1, 2), (3, 4, 5)]


def test_a_domain_uses_those_whose_files_its_files_use() -> None:
    code = files("a/one.py", "a/two.py", "a/three.py", "b/four.py", "b/five.py", "b/six.py")
    links = [*together(0, 1, 2), *together(3, 4, 5), Link(5, 0, 1.0)]
    first, second = find_domains(code, links)
    assert (first.uses, second.uses) == ((), (0,))


def test_the_largest_domain_comes_first() -> None:
    code = files(*(f"a/{number}.py" for number in range(2)), *(f"b/{at}.py" for at in range(4)))
    found = find_domains(code, [*together(0, 1), *together(2, 3, 4, 5)])
    assert [domain.files for domain in found] == [(2, 3, 4, 5), (0, 1)]


def test_a_file_without_ties_joins_its_folder() -> None:
    code = files("a/one.py", "a/two.py", "a/lonely.py", "b/three.py", "b/four.py", "c/other.py")
    found = find_domains(code, [*together(0, 1), *together(3, 4)])
    assert [domain.files for domain in found] == [(0, 1, 2), (3, 4), (5,)]


def test_a_folder_holds_no_file_that_belongs_to_another() -> None:
    code = files("a/one.py", "a/two.py", "b/three.py", "b/four.py", "a/moved.py")
    found = find_domains(code, [*together(0, 1), *together(2, 3, 4)])
    assert [domain.files for domain in found] == [(2, 3, 4), (0, 1)]


def test_every_file_is_in_exactly_one_domain() -> None:
    code, links = project(12, 9)
    found = find_domains(code, links)
    assert sorted(number for domain in found for number in domain.files) == list(range(108))
    for at, domain in enumerate(found):
        assert at not in domain.uses
        assert set(domain.uses) <= set(range(len(found)))


def test_the_order_of_links_makes_no_difference() -> None:
    code, links = project(10, 7)
    expected = find_domains(code, links)
    for seed in range(5):
        shuffled = random.Random(seed).sample(links, len(links))
        assert find_domains(code, shuffled) == expected


_PRINT_DOMAINS = """
from coatcheck_codegraph.domains import find_domains
from packages.codegraph.tests.test_domains import project
print(find_domains(*project(10, 7)))
"""


def test_two_processes_find_the_same_domains() -> None:
    def run(hash_seed: str) -> str:
        environment = os.environ | {
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": f"{REPOSITORY / 'packages/codegraph/src'}{os.pathsep}{REPOSITORY}",
        }
        return subprocess.run(
            [sys.executable, "-c", _PRINT_DOMAINS],
            env=environment,
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    first, second = run("1"), run("2")
    assert "Part" in first
    assert first == second


def test_a_project_without_files_has_no_domains() -> None:
    assert find_domains([], []) == []


def test_one_file_is_one_domain_that_is_called_by_it() -> None:
    (domain,) = find_domains([DomainFile("billing.py", ["Invoice", "send_invoice"])], [])
    assert domain == Domain(
        "Billing",
        "1 file; common words: billing, invoice, send.",
        "",
        ("billing", "invoice", "send"),
        (0,),
        (),
        key_files=(0,),
    )


def test_thousands_of_files_fall_into_their_parts() -> None:
    code, links = project(100, 50)
    found = find_domains(code, links)
    assert sum(len(domain.files) for domain in found) == 5_000
    assert len(set(named(found))) == len(found)
    folders = {
        frozenset(code[number].path.split("/")[0] for number in domain.files) for domain in found
    }
    assert len(folders) == len(found)  # no folder's files are in two of them


# Subdomains


def nested(pieces: int, size: int = 8) -> tuple[list[DomainFile], list[Link]]:
    """Two parts of so many pieces: the files of a piece use each other, and a few of the next."""
    code: list[DomainFile] = []
    links: list[Link] = []
    for part in ("bank", "shop"):
        first = len(code)
        for piece in range(pieces):
            begin = len(code)
            code += files(*(f"{part}/piece_{piece}/{part}_{at}.py" for at in range(size)))
            links += together(*range(begin, begin + size))
            after = first + (piece + 1) % pieces * size
            links += [
                Link(begin + at, after + (at + step) % size, 1.0)
                for at in range(size)
                for step in range(3)
            ]
    return code, links


def test_a_domain_falls_into_the_parts_whose_files_use_each_other_most() -> None:
    code, links = nested(2)
    found = find_domains(code, links)
    assert [len(domain.files) for domain in found] == [16, 16]
    for domain in found:
        assert [len(part.files) for part in domain.subdomains] == [8, 8]
        folders = [
            {code[at].path.rpartition("/")[0] for at in part.files} for part in domain.subdomains
        ]
        assert [len(each) for each in folders] == [1, 1]
        assert sorted(at for part in domain.subdomains for at in part.files) == list(domain.files)


def test_no_subdomain_has_the_name_of_another_or_of_a_domain() -> None:
    found = find_domains(*nested(2))
    names = [*named(found), *(part.name for domain in found for part in domain.subdomains)]
    assert len(names) > len(found)
    assert len(set(names)) == len(names)


def test_subdomains_are_the_same_whatever_the_order_of_links_is() -> None:
    code, links = nested(2)
    expected = find_domains(code, links)
    for seed in range(3):
        assert find_domains(code, random.Random(seed).sample(links, len(links))) == expected


def test_a_small_domain_is_one_of_its_own() -> None:
    (domain,) = find_domains(files(*(f"a/{at}.py" for at in range(5))), together(*range(5)))
    assert domain.subdomains == ()


def test_a_domain_that_nothing_divides_falls_into_its_folders() -> None:
    code = files(*(f"a/{at}.py" for at in range(6)), *(f"b/{at}.py" for at in range(6)))
    (domain,) = find_domains(code, together(*range(12)))
    assert [part.files for part in domain.subdomains] == [tuple(range(6)), tuple(range(6, 12))]


def test_no_file_is_a_subdomain_of_its_own() -> None:
    for code, links in (nested(2), project(12, 9), project(3, 40)):
        for domain in find_domains(code, links):
            assert all(len(part.files) > 1 for part in domain.subdomains)
            assert len(domain.subdomains) != 1


def test_strengths_say_how_much_of_what_a_domain_uses_is_another_ones() -> None:
    code = files(*(f"{folder}/{at}.py" for folder in "abc" for at in range(3)))
    links = [*together(0, 1, 2), *together(3, 4, 5), *together(6, 7, 8)]
    found = find_domains(code, [*links, Link(0, 3, 0.3), Link(1, 6, 0.1)])
    first = next(domain for domain in found if 0 in domain.files)
    assert dict(zip(first.uses, first.strengths, strict=True)) == {
        next(at for at, domain in enumerate(found) if 3 in domain.files): 0.75,
        next(at for at, domain in enumerate(found) if 6 in domain.files): 0.25,
    }


def test_key_files_are_those_that_most_others_use() -> None:
    code = files(*(f"a/{at}.py" for at in range(5)))
    (domain,) = find_domains(code, [Link(at, 3, 1.0) for at in (0, 1, 2, 4)])
    assert domain.key_files[0] == 3
    assert set(domain.key_files) == set(range(5))


# Names


def called(*domains: Sequence[str | DomainFile]) -> list[str]:
    """What domains of these files are called, where the files of each use each other."""
    code: list[DomainFile] = []
    links: list[Link] = []
    for members in domains:
        start = len(code)
        code += [each if isinstance(each, DomainFile) else files(each)[0] for each in members]
        links += together(*range(start, len(code)), weight=10.0)
    found = find_domains(code, links)
    by_first = {domain.files[0]: domain for domain in found}
    assert len(by_first) == len(domains)
    starts = [sum(map(len, domains[:at])) for at in range(len(domains))]
    return [by_first[start].name for start in starts]


def test_a_domain_is_called_by_the_folder_that_most_of_its_files_are_in() -> None:
    assert called(
        ["shop/order_flow/a.py", "shop/order_flow/b.py", "shop/c.py"],
        ["shop/prices/d.py", "shop/prices/e.py"],
    ) == ["Order Flow", "Prices"]


def test_a_folder_that_any_code_has_gives_way_to_the_one_above_it() -> None:
    assert called(
        ["cart/src/a.py", "cart/src/b.py"], ["packages/pay/lib/c.py", "packages/pay/lib/d.py"]
    ) == ["Cart", "Pay"]


def test_a_domain_without_a_folder_is_called_by_its_files() -> None:
    assert called(
        ["src/parser.py", "src/lexer.py", "src/utils.py"], ["docs/x.py", "docs/y.py"]
    ) == ["Lexer and Parser", "Docs"]


def test_the_file_that_others_lean_on_gives_the_name() -> None:
    code = files("src/alpha.py", "src/beta.py", "src/engine.py", "src/gamma.py", "etc/a.py")
    links = [Link(user, 2, 1.0) for user in (0, 1, 3)]
    assert named(find_domains(code, links))[0].startswith("Engine and ")


def test_domains_in_one_folder_are_told_apart_by_their_words() -> None:
    assert called(
        ["web/routes.py", "web/pages.py", "web/views.py"],
        ["web/cookies.py", "web/jar.py"],
        ["docs/a.py", "docs/b.py"],
    ) == ["Web", "Web Cookies", "Docs"]


def test_folders_of_one_name_are_told_apart_by_where_they_are() -> None:
    assert called(
        ["shop/api/a.py", "shop/api/b.py", "shop/api/c.py"], ["bank/api/d.py", "bank/api/e.py"]
    ) == ["Api", "Bank Api"]


def test_names_are_unique_even_where_nothing_tells_domains_apart() -> None:
    names = called(
        ["a/x/1.py", "a/x/2.py", "a/x/3.py", "a/x/4.py"],
        ["a/x/5.py", "a/x/6.py", "a/x/7.py"],
        ["a/x/8.py", "a/x/9.py"],
        ["a/y/1.py", "a/y/2.py"],
    )
    assert names == ["X", "X 2", "X 3", "Y"]


@pytest.mark.parametrize(
    ("identifier", "words"),
    [
        ("sendInvoice", {"send", "invoice"}),
        ("HTTPServer", {"http", "server"}),
        ("send_invoice_2", {"send", "invoice"}),
        ("IdByTermValue", {"term"}),
        ("x", set()),
        ("größeMessen", {"größe", "messen"}),
        ("数据", {"数据"}),
    ],
)
def test_identifiers_are_taken_apart_into_words(identifier: str, words: set[str]) -> None:
    (domain,) = find_domains([DomainFile("1.py", [identifier])], [])
    assert set(domain.keywords) == words


def test_words_that_are_at_home_elsewhere_as_well_are_worth_less() -> None:
    code = [
        DomainFile("a/1.py", ["request", "tax"]),
        DomainFile("a/2.py", ["request", "tax"]),
        DomainFile("b/3.py", ["request", "mail"]),
        DomainFile("b/4.py", ["request", "mail"]),
    ]
    first, second = find_domains(code, [*together(0, 1), *together(2, 3)])
    assert (first.keywords, second.keywords) == (("tax", "request"), ("mail", "request"))
