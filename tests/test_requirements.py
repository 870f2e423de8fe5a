"""The dependencies of pyproject.toml have upper bounds, and the lock file has them within these bounds, with hashes."""

import ast
import pathlib
import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from winobench.base import extensions
from winobench.responders.hosted import providers

ROOT = pathlib.Path(__file__).resolve().parent.parent
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def extras(project):
    """Extra -> its requirements, also by way of other extras of winobench."""

    def follow(extra):
        for requirement in map(Requirement, project["optional-dependencies"][extra]):
            for other in requirement.extras if requirement.name == "winobench" else ():
                yield from follow(other)
            if requirement.name != "winobench":
                yield requirement

    return {extra: [*follow(extra)] for extra in project["optional-dependencies"]}


@pytest.fixture(scope="module")
def locked():
    """(requirement, its number of hashes) of each entry of the lock file."""
    text = re.sub(r"^#.*\n", "", (ROOT / "requirements.lock").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    entries = []
    for line in text.splitlines():
        stated, *hashes = line.split("--hash=")
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one.strip()) for one in hashes)
        entries.append((Requirement(stated.strip()), len(hashes)))
    return entries


def _versions(locked, name, python):
    environment = {"python_version": python, "python_full_version": f"{python}.1", "sys_platform": "linux"}
    environment |= {"platform_system": "Linux", "platform_machine": "x86_64", "implementation_name": "cpython"}
    return [
        next(iter(requirement.specifier)).version
        for requirement, _ in locked
        if canonicalize_name(requirement.name) == canonicalize_name(name)
        and (requirement.marker is None or requirement.marker.evaluate(environment))
    ]


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_file_has_one_version_of_each_requirement_within_its_range(project, locked, python):
    for text in project["dependencies"]:
        wanted = Requirement(text)
        (version,) = _versions(locked, wanted.name, python)
        assert wanted.specifier.contains(version), f"{wanted} is locked at {version}"


def test_the_lock_file_pins_by_hash_and_names_no_place(locked):
    for requirement, num_hashes in locked:
        (specifier,) = requirement.specifier
        assert specifier.operator == "=="
        assert num_hashes >= 1
        assert requirement.url is None
    assert not {"torch", "diffusers"} & {requirement.name for requirement, _ in locked}
    text = (ROOT / "requirements.lock").read_text()
    assert not re.search(r"https?:|file:|--index|--find-links|--extra|/home|/opt|/work", text)


def test_every_requirement_has_an_upper_bound(project, extras):
    own = map(Requirement, project["dependencies"])
    for requirement in [*own, *(each for requirements in extras.values() for each in requirements)]:
        # What builds and installs packages is not pinned by any of them.
        if requirement.name != "setuptools":
            assert any(one.operator in ("<", "<=", "==") for one in requirement.specifier), requirement


@pytest.mark.parametrize("package", ["winobench", "launch", "configs"])
def test_what_is_installed_imports_neither_diffusers_nor_torch(package):
    """Not late either, but for the contrib package that converts single files: folders are read without them. What runs
    their code is one folder of the core and the packages that plug in. They are not imported without need, as tests of
    these packages check."""
    named = re.compile(r"^\s*(from|import)\b.*\b(diffusers|torch|torchvision)\b", re.MULTILINE)
    values = extensions.added(extensions.TORCH_FAMILIES).values()
    folders = {ROOT.joinpath(*value.split(".")[:3]) for value in values} | {ROOT / package / "torch_modules"}
    torch = {path for folder in folders for path in folder.rglob("*.py")}
    for path in sorted({*(ROOT / package).rglob("*.py")} - torch):
        text = path.read_text()
        module = ast.parse(text if named.search(text) else "")
        for node in module.body if path.stem == "single_file" else ast.walk(module):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert not {name.partition(".")[0] for name in names} & {"diffusers", "torch", "torchvision"}, path


def test_diffusers_comes_with_the_tests_and_by_its_own_extras(project, extras):
    assert "diffusers" not in [Requirement(text).name for text in project["dependencies"]]
    bringing = {extra for extra, requirements in extras.items() if "diffusers" in [each.name for each in requirements]}
    assert bringing == {"test", "diffusers", "torch"}


def test_the_extra_of_hosted_models_has_each_providers_client(extras):
    own = [provider for provider in providers.APIS.values() if provider.__module__.startswith("winobench.")]
    assert {each.name for each in extras["api"]} == {provider.package for provider in own}


def test_the_page_on_installing_lists_every_extra(extras):
    table = (ROOT / "docs" / "howto" / "install.md").read_text().partition("## Extras")[2].partition("\n\nCombine")[0]
    listed = [name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]
    assert sorted(listed) == sorted(extras)
