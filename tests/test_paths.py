"""The folders for cache, logs and run-time files."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from kernelserve import paths
from kernelserve.errors import InvalidConfigError


def test_cache_dir_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("KERNELSERVE_CACHE_DIR", str(tmp_path / "own"))
    assert paths.cache_dir() == tmp_path / "own"
    assert paths.log_dir() == tmp_path / "own" / "logs"
    monkeypatch.delenv("KERNELSERVE_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert paths.cache_dir() == tmp_path / "xdg" / "kernelserve"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert paths.cache_dir() == tmp_path / "home" / ".cache" / "kernelserve"
    assert paths.cache_dir().is_dir()


def test_what_nobody_uses_for_a_month_is_forgotten(tmp_path):
    month_ago = time.time() - 31 * 86_400
    old, used, other = (tmp_path / name for name in ("old.index", "used.index", "old.log"))
    for path in (old, used, other):
        path.touch()
        os.utime(path, (month_ago, month_ago))
    paths.note_use(used)
    paths.forget_unused(tmp_path, "*.index")
    assert set(tmp_path.iterdir()) == {used, other}
    paths.note_use(
        tmp_path / "no" / "such.index"
    )  # a cache that cannot be written is a cache all the same


def test_runtime_dir_is_private(monkeypatch, tmp_path):
    monkeypatch.setenv("KERNELSERVE_RUNTIME_DIR", str(tmp_path / "run"))
    (tmp_path / "run").mkdir(mode=0o755)
    assert stat.S_IMODE(paths.runtime_dir().stat().st_mode) == 0o700
    monkeypatch.delenv("KERNELSERVE_RUNTIME_DIR")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert paths.runtime_dir() == tmp_path / "kernelserve"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "absent"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert paths.runtime_dir().parent == tmp_path
    assert paths.runtime_dir().name.startswith("kernelserve-")


def test_a_link_in_place_of_the_runtime_dir_is_refused(monkeypatch, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setenv("KERNELSERVE_RUNTIME_DIR", str(tmp_path / "run"))
    with pytest.raises(InvalidConfigError, match="KERNELSERVE_RUNTIME_DIR"):
        paths.runtime_dir()
    assert Path(tmp_path / "elsewhere").is_dir()
