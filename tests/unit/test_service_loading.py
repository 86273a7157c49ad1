"""Finding services by the names given on a command line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coatcheck.domain.errors import SettingsInvalid
from coatcheck.service import load_services

APP = """
from coatcheck.service import Service

docs = Service("docs")
more = Service("more")
twin = Service("docs")
number = 5

class Container:
    inner = Service("inner")
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module in the current folder that declares services."""
    name = f"app_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(APP)
    (tmp_path / f"{name}_broken.py").write_text("import a_module_that_is_not_there")
    (tmp_path / f"{name}_raising.py").write_text("raise ZeroDivisionError('oh')")
    (tmp_path / f"{name}_empty.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    yield name
    for module in [module for module in sys.modules if module.startswith(name)]:
        del sys.modules[module]


def test_services_are_found_in_the_current_folder_in_the_given_order(app: str) -> None:
    services = load_services([f"{app}:more", f"{app}:docs", f"{app}:Container.inner"])
    assert [service.name for service in services] == ["more", "docs", "inner"]


def test_a_service_named_twice_is_loaded_once(app: str) -> None:
    assert len(load_services([f"{app}:docs", f"{app}:docs"])) == 1


def test_two_services_of_one_name_are_refused(app: str) -> None:
    with pytest.raises(SettingsInvalid, match=f"{app}:docs and {app}:twin are two services"):
        load_services([f"{app}:docs", f"{app}:twin"])


@pytest.mark.parametrize("target", ["", "app", "app:", ":docs", ".app:docs"])
def test_a_target_of_another_form_is_refused_with_the_form(target: str) -> None:
    with pytest.raises(SettingsInvalid, match="write it as module:attribute, such as app:docs"):
        load_services([target])


def test_a_missing_module_is_named_with_where_it_was_looked_for(app: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid, match=rf"no module 'nowhere_{app}' in {tmp_path}"):
        load_services([f"nowhere_{app}:docs"])
    with pytest.raises(SettingsInvalid, match=rf"no module 'nowhere_{app}' in {tmp_path}"):
        load_services([f"nowhere_{app}.inner:docs"])


def test_a_missing_attribute_is_named_with_the_services_there_are(app: str) -> None:
    with pytest.raises(SettingsInvalid, match=rf"{app} has no 'doc'\. It has {app}:docs, "):
        load_services([f"{app}:doc"])
    with pytest.raises(SettingsInvalid, match=f"{app}_empty declares no services"):
        load_services([f"{app}_empty:doc"])


def test_what_is_no_service_is_refused_by_its_type(app: str) -> None:
    with pytest.raises(SettingsInvalid, match=f"'{app}:number' is a int, not a Service"):
        load_services([f"{app}:number"])


def test_an_error_inside_the_module_is_raised_as_it_is(app: str) -> None:
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there"):
        load_services([f"{app}_broken:docs"])
    with pytest.raises(ZeroDivisionError, match="oh"):
        load_services([f"{app}_raising:docs"])
