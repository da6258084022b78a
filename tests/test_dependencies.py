"""What is imported is declared, and what is declared is imported."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import packages_distributions, requires

from tests.test_layers import PACKAGE, imports, modules

PROJECT = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]
USERS_EXTRAS = [name for name in PROJECT["optional-dependencies"] if name != "dev"]


def declared() -> set[str]:
    requirements = [
        *PROJECT["dependencies"],
        *(r for name in USERS_EXTRAS for r in PROJECT["optional-dependencies"][name]),
    ]
    return {_normalized(re.split(r"[\s<>=!~;\[]", requirement, maxsplit=1)[0]) for requirement in requirements}


def imported() -> set[str]:
    distributions = packages_distributions()
    used = {name.split(".")[0] for path in modules() for name, _, typing_only in imports(path) if not typing_only}
    third_party = used - sys.stdlib_module_names - {"teamcli"}
    names = {_normalized(name) for module in third_party for name in distributions.get(module, [module])}
    owners = pinned()
    return {owners.get(name, name) for name in names}


def pinned() -> dict[str, str]:
    """The distributions that a declared one requires in exactly one version. To declare these, too, would conflict."""
    required = [(owner, requirement) for owner in declared() for requirement in requires(owner) or ()]
    exact = [(owner, re.match(r"([\w.-]+)\s*==", requirement)) for owner, requirement in required]
    return {_normalized(found[1]): owner for owner, found in exact if found}


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_imported_package_is_declared() -> None:
    assert imported() - declared() == set()


def test_every_declared_package_is_imported() -> None:
    assert declared() - imported() == set()
