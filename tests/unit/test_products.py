"""Products are found by entry points of distributions, and only those that are on are loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from coatcheck.domain.errors import SettingsInvalid
from coatcheck.installed import (
    chosen_products,
    installed_products,
    load_products,
    reserved_services,
)
from coatcheck.product import Products
from tests.distributions import PRODUCTS, SERVICES, write_distribution

OURS = ["batches", "console", "gateway", "graphs", "llm", "scrape", "speech"]
SOURCE = Path(__file__).resolve().parents[2] / "src"


def run(program: str, *folders: Path) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own, with these folders on its path."""
    path = os.pathsep.join(map(str, [SOURCE, *folders]))
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def refusal(program: str, *folders: Path) -> str:
    """The error that a program ends with."""
    ended = run(program, *folders)
    assert ended.returncode != 0, ended.stdout
    return ended.stderr.strip().splitlines()[-1]


LOAD = "from coatcheck.product import Products; print(*(each.name for each in Products.load()))"


def test_all_products_are_on_unless_some_are_named() -> None:
    assert installed_products() == OURS
    assert [each.name for each in Products.load()] == OURS
    assert [each.name for each in Products.load(("llm", "gateway"))] == ["gateway", "llm"]


def test_a_product_that_is_not_installed_is_refused_with_what_there_is() -> None:
    with pytest.raises(SettingsInvalid) as refused:
        chosen_products(("gateway", "graph", "tts"))
    assert str(refused.value) == (
        "COATCHECK_PRODUCTS: graph, tts are not installed; installed are "
        "batches, console, gateway, graphs, llm, scrape, speech"
    )
    with pytest.raises(SettingsInvalid, match="graph is not installed"):
        load_products(("graph",))


def test_every_service_of_a_product_is_reserved_for_it() -> None:
    declared = {service: each.name for each in Products.load() for service in each.services}
    assert reserved_services() == declared


def test_registrations_import_nothing_of_what_they_register() -> None:
    ended = run(f"{LOAD}\nimport sys\nprint(*sys.modules)")
    assert ended.returncode == 0, ended.stderr
    names, loaded = ended.stdout.splitlines()
    assert names.split() == OURS
    ours = {name for name in loaded.split() if name.startswith("coatcheck.")}
    products = {name for name in ours if name.startswith("coatcheck.products.")}
    assert products == {
        *(f"coatcheck.products.{name}" for name in OURS),
        *(f"coatcheck.products.{name}.product" for name in OURS),
    }
    heavy = ("control", "engine", "store", "worker", "upkeep", "service", "settings", "codegraph")
    assert not {name for name in ours if name.split(".")[1] in heavy}


def test_a_product_of_another_distribution_is_found_and_its_services_are_taken(
    tmp_path: Path,
) -> None:
    write_distribution(
        tmp_path,
        "abacus",
        modules={
            "abacus.py": "from coatcheck.product import Product\n"
            "PRODUCT = Product(name='abacus', services=('beads',))\n"
        },
        entry_points={
            PRODUCTS: {"abacus": "abacus:PRODUCT"},
            SERVICES: {"beads": "abacus:PRODUCT"},
        },
    )
    ended = run(LOAD, tmp_path)
    assert ended.stdout.split() == ["abacus", *OURS], ended.stderr
    said = refusal("from coatcheck import Service; Service('beads')", tmp_path)
    assert "'beads' is not a valid service name" in said
    assert run("from coatcheck import Service; Service('beads')").returncode == 0


def test_a_product_that_cannot_be_imported_is_named_with_its_error(tmp_path: Path) -> None:
    write_distribution(
        tmp_path,
        "rusty-abacus",
        modules={"abacus.py": "import beads_that_are_not_there\n"},
        entry_points={PRODUCTS: {"abacus": "abacus:PRODUCT"}},
    )
    said = refusal(LOAD, tmp_path)
    assert "the product abacus of rusty-abacus cannot be loaded from abacus:PRODUCT" in said
    assert "No module named 'beads_that_are_not_there'" in said
    ended = run("from coatcheck.product import Products; Products.load(('gateway',))", tmp_path)
    assert ended.returncode == 0, "one that is off is not imported"


def test_two_products_of_one_name_are_refused_with_their_distributions(tmp_path: Path) -> None:
    write_distribution(tmp_path, "other-llm", entry_points={PRODUCTS: {"llm": "other:PRODUCT"}})
    said = refusal(LOAD, tmp_path)
    assert "two distributions have the product llm: " in said
    assert "coatcheck" in said
    assert "other-llm" in said


def test_two_products_for_everybodys_jobs_cannot_be_on_together(tmp_path: Path) -> None:
    write_distribution(
        tmp_path,
        "abacus",
        modules={
            "abacus.py": "from coatcheck.product import Product\n"
            "PRODUCT = Product(name='abacus', adapts_other_jobs=True)\n"
        },
        entry_points={PRODUCTS: {"abacus": "abacus:PRODUCT"}},
    )
    said = refusal(LOAD, tmp_path)
    assert "the products abacus and gateway cannot be on together" in said


def test_what_an_entry_point_names_has_to_be_a_product(tmp_path: Path) -> None:
    write_distribution(
        tmp_path,
        "abacus",
        modules={"abacus.py": "PRODUCT = 'beads'\n"},
        entry_points={PRODUCTS: {"abacus": "abacus:PRODUCT"}},
    )
    assert "names 'beads', which is not a coatcheck.product.Product" in refusal(LOAD, tmp_path)


@pytest.mark.parametrize(
    ("product", "said"),
    [
        ("name='calculator'", "names a product with another name: calculator"),
        ("name='abacus', services=('beads',)", "has the services beads, but entry points of"),
    ],
)
def test_a_product_has_to_fit_its_entry_points(product: str, said: str, tmp_path: Path) -> None:
    write_distribution(
        tmp_path,
        "abacus",
        modules={
            "abacus.py": f"from coatcheck.product import Product\nPRODUCT = Product({product})\n"
        },
        entry_points={PRODUCTS: {"abacus": "abacus:PRODUCT"}},
    )
    assert said in refusal(LOAD, tmp_path)
