"""The page of licences names every locked package, and the bill of materials follows from page and locks."""

import importlib.util
import re
import sys
from types import ModuleType

from tests.conftest import ROOT


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_sbom", ROOT / "docs" / "make_sbom.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules["make_sbom"] = made
    spec.loader.exec_module(made)
    return made


def test_the_licence_of_every_locked_package_is_on_the_page() -> None:
    made = load_script()
    assert made.PAGE.read_text(encoding="utf-8") == made.write_page(), "run 'python docs/make_sbom.py --licences'"


def test_no_dependency_puts_a_users_own_program_under_its_licence() -> None:
    licences = load_script().read_licences()
    assert [name for name, stated in licences.items() if re.match(r"A?GPL", stated)] == []
    assert {name for name, stated in licences.items() if "GPL" in stated} == {"docutils", "psycopg", "psycopg-binary"}


def test_the_bill_of_materials_has_every_package_with_version_hashes_and_licence() -> None:
    made = load_script()
    bill = made.make_bill()
    locked = {(name, version) for name, versions in made.read_lock("all").items() for version in versions}
    assert {(one["name"], one["version"]) for one in bill["components"]} == locked
    assert len({one["bom-ref"] for one in bill["components"]}) == len(locked)
    assert all(one["hashes"] and one["licenses"] for one in bill["components"])
    assert {one["name"] for one in bill["components"] if one["scope"] == "required"} == set(made.read_lock("base"))
    assert bill["metadata"]["component"]["name"] == "refold"
