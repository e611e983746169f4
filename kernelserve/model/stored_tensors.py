"""The tensors of safetensors files by their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

__all__ = ["StoredTensors"]

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class StoredTensors:
    """Files that are mapped, not read. Those of another kind have no tensors here."""

    def __init__(self, files: list[Path]) -> None:
        self._files: dict[str, Any] = {}
        for path in files:
            if path.suffix == ".safetensors":
                file: Any = safe_open(path, "pt")
                self._files |= dict.fromkeys(file.keys(), file)

    def get(self, name: str) -> torch.Tensor | None:
        """Return a tensor of plain floats; None if there is none of this name."""
        if name not in self._files:
            return None
        tensor: torch.Tensor = self._files[name].get_tensor(name)
        return tensor if tensor.dtype in _DTYPES else None
