"""Rules of the house that no tool checks, and files that must agree with each other."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import kernelserve

ROOT = Path(__file__).parents[1]
PACKAGES = (ROOT / "kernelserve", ROOT / "widgets" / "kernelserve_widgets")
SOURCES = sorted(path for package in PACKAGES for path in package.rglob("*.py"))
MAX_LINES = 400
# An address of a package registry in a file would outlive the registry that a reader uses.
REGISTRY_HOST = re.compile(
    r"pypi\.|pythonhosted|download\.pytorch|npmjs|deb\.debian|index-url|conda\.io"
)


def test_every_module_has_a_docstring() -> None:
    missing = [
        path
        for path in SOURCES
        if path.stat().st_size and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not missing


def test_every_package_folder_is_a_package() -> None:
    folders = {path.parent for path in SOURCES}
    assert not [folder for folder in folders if not (folder / "__init__.py").exists()]


def test_no_file_is_too_long() -> None:
    counts = {path: path.read_text().count("\n") for path in SOURCES}
    assert not {path: count for path, count in counts.items() if count > MAX_LINES}


def test_no_file_has_a_name_that_says_nothing() -> None:
    assert not [path for path in SOURCES if path.stem in ("utils", "helpers", "common", "misc")]


def test_no_build_file_names_a_package_registry() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "Makefile", ".ci", "constraints", "pyproject.toml", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split()
    names = tracked or ["Makefile", "pyproject.toml", "README.md"]
    assert not [name for name in names if REGISTRY_HOST.search((ROOT / name).read_text())]


def test_the_changelog_knows_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    [newest, *_] = re.findall(r"^## \[(\d[^\]]*)\]", changelog, re.MULTILINE)
    assert newest == kernelserve.__version__


def test_the_map_names_only_files_that_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = set(re.findall(r"`((?:[a-z_]+/)+(?:[a-z_0-9]+\.[a-z]+)?)`", text))
    assert named
    missing = [
        name for name in named if not any((folder / name).exists() for folder in (*PACKAGES, ROOT))
    ]
    assert not missing
