"""Where kernelserve keeps files: a cache that may be deleted at any time, sockets, and logs."""

from __future__ import annotations

import os
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from kernelserve.errors import InvalidConfigError

__all__ = ["cache_dir", "forget_unused", "log_dir", "note_use", "runtime_dir"]

_KEPT_S = 30 * 86_400.0


def cache_dir() -> Path:
    """Return the folder for converted and fetched files, made if absent.

    KERNELSERVE_CACHE_DIR, else XDG_CACHE_HOME/kernelserve, else ~/.cache/kernelserve.
    """
    chosen = os.environ.get("KERNELSERVE_CACHE_DIR")
    if chosen:
        path = Path(chosen).expanduser()
    else:
        xdg = os.environ.get("XDG_CACHE_HOME")
        path = (Path(xdg) if xdg else Path.home() / ".cache") / "kernelserve"
    path.mkdir(parents=True, exist_ok=True)
    return path


def note_use(path: Path) -> None:
    """Note that a file of the cache was used now, if the cache can be written."""
    with suppress(OSError):
        path.touch()


def forget_unused(folder: Path, pattern: str) -> None:
    """Delete what nobody has used for a month: files of former releases, compilers and CPUs."""
    for path in folder.glob(pattern):
        with suppress(OSError):  # another engine may do the same
            if time.time() - path.stat().st_mtime > _KEPT_S:
                path.unlink()


def log_dir() -> Path:
    """Return the folder for the logs of engines, made if absent."""
    path = cache_dir() / "logs"
    path.mkdir(exist_ok=True)
    return path


def runtime_dir() -> Path:
    """Return the private (0700) folder for sockets and descriptors of engines, made if absent.

    KERNELSERVE_RUNTIME_DIR, else XDG_RUNTIME_DIR/kernelserve where that exists, else
    <tmp>/kernelserve-<uid>. Raises InvalidConfigError if the folder belongs to somebody else or is
    a link: anyone can make a folder in <tmp>.
    """
    chosen = os.environ.get("KERNELSERVE_RUNTIME_DIR")
    xdg = os.environ.get("XDG_RUNTIME_DIR")
    if chosen:
        path = Path(chosen).expanduser()
        path.parent.mkdir(parents=True, exist_ok=True)
    elif xdg and Path(xdg).is_dir():
        path = Path(xdg) / "kernelserve"
    else:
        path = Path(tempfile.gettempdir()) / f"kernelserve-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise InvalidConfigError(
            f"{path} is not a folder of this user: remove it or set KERNELSERVE_RUNTIME_DIR"
        )
    if stat.S_IMODE(found.st_mode) != 0o700:
        path.chmod(0o700)
    return path
