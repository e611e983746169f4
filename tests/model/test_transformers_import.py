"""transformers knows the same classes with our index as without it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
from kernelserve.transformers_import import remember_model_index
if sys.argv[1] == "ours":
    remember_model_index()
import transformers
from transformers.utils import import_utils
from transformers.models.llama import LlamaConfig
assert transformers.LlamaConfig is LlamaConfig
scanned = import_utils.create_import_structure_from_path.cache_info().currsize
print(len(dir(transformers)), hash(tuple(sorted(dir(transformers)))), scanned > 100)
"""


def _run(mode: str, cache: Path) -> list[str]:
    env = os.environ | {"KERNELSERVE_CACHE_DIR": str(cache), "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, mode], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> list[str]:
    return _run("plain", tmp_path_factory.mktemp("plain"))


def test_the_first_import_keeps_the_index_and_the_second_uses_it(plain, tmp_path):
    count, names, scanned = plain
    assert scanned == "True"
    assert _run("ours", tmp_path) == [count, names, "True"]
    assert len(list(tmp_path.glob("transformers-*.index"))) == 2  # the package's and its models'
    assert _run("ours", tmp_path) == [count, names, "False"]


def test_a_damaged_index_is_made_again(plain, tmp_path):
    _run("ours", tmp_path)
    indices = {path: path.read_bytes() for path in tmp_path.glob("transformers-*.index")}
    for path, whole in indices.items():
        path.write_bytes(whole[: len(whole) // 2])
    assert _run("ours", tmp_path) == plain
    assert all(len(path.read_bytes()) == len(whole) for path, whole in indices.items())
