"""The environment of one peer: where it lies, whether it is whole, and the command that runs in it."""

from __future__ import annotations

import os
from pathlib import Path

from kernelserve.bench.peer_error import PeerError
from kernelserve.bench.peer_recipes import RECIPES, PeerRecipe

__all__ = ["PeerEnvironment"]

_NOT_FOR_PEERS = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
_LIBRARY_FOLDERS = ("/usr/lib", "/usr/lib/*", "/usr/local/lib")


class PeerEnvironment:
    """A virtual environment outside the checkout, made by `make bench-peers`."""

    def __init__(self, name: str) -> None:
        """Raise PeerError if there is no peer of this name."""
        if name not in RECIPES:
            raise PeerError(f"there is no peer {name}; choose from {', '.join(RECIPES)}")
        self.name = name
        self.recipe: PeerRecipe = RECIPES[name]
        self.folder = peers_folder() / name
        self.models = peers_folder() / "models"
        self._stamp = self.folder / ".kernelserve-built"

    @property
    def python(self) -> Path:
        """The interpreter that the peer's scripts run in."""
        return self.folder / "bin" / "python"

    def is_built(self) -> bool:
        """Whether it is whole, with the packages that the recipe names now, and its models are made."""
        return self._stamp.is_file() and self._stamp.read_text().split() == [*self.recipe.packages]

    def note_built(self) -> None:
        """Say so, once all is done."""
        self._stamp.write_text("\n".join(self.recipe.packages))

    def check(self) -> None:
        """Raise PeerError with the command that makes it, if it is not there."""
        if not self.is_built():
            raise PeerError(
                f"{self.name} is not installed in {self.folder}: "
                f'run `make bench-peers PEERS="{self.name}"`'
            )

    def variables(self) -> dict[str, str]:
        """The environment variables of its processes: ours, without what would make it import our packages."""
        kept = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_PEERS}
        libraries = [self._library(name) for name in self.recipe.preload]
        if libraries:
            kept["LD_PRELOAD"] = ":".join(libraries)
        return kept | dict(self.recipe.environment)

    def _library(self, name: str) -> str:
        for pattern in (str(self.folder / "lib").lstrip("/"), *_LIBRARY_FOLDERS):
            for found in Path("/").glob(f"{pattern.lstrip('/')}/{name}"):
                return str(found)
        raise PeerError(
            f"{self.name} wants {name}, which is nowhere: it comes with {self.recipe.preload[name]}"
        )


def peers_folder() -> Path:
    """Return where environments and models are: KERNELSERVE_PEERS, else ~/.cache/kernelserve-peers."""
    chosen = os.environ.get("KERNELSERVE_PEERS")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "kernelserve-peers"
