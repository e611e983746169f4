"""How large a picture a model makes use of, by the settings of its image processor."""

from __future__ import annotations

import json
from math import isqrt
from pathlib import Path
from typing import Any

__all__ = ["useful_image_side"]

_LONG = 2
"""Times as long as wide: up to that the answer is right. A longer picture would need more where sides are fixed."""


def useful_image_side(processor_dir: str) -> int:
    """Return the longer side in pixels above which a picture tells the model no more; 0: not known. Never raises.

    Made smaller to it, a picture of up to 2:1 still has all the pixels that the processor keeps.
    """
    settings = _settings(Path(processor_dir)) if processor_dir else {}
    size = settings.get("size")
    sizes = dict(size) if isinstance(size, dict) else {"shortest_edge": size}
    if settings.get("do_resize") is False or settings.get("do_pan_and_scan"):
        return 0
    if isinstance(tiles := settings.get("image_grid_pinpoints"), list) and tiles:
        return max(
            (_whole(side) for tile in tiles if isinstance(tile, list) for side in tile), default=0
        )
    longest = _whole(sizes.get("longest_edge"))
    area = _whole(settings.get("max_pixels")) or _whole(sizes.get("max_pixels"))
    if not area and "merge_size" in settings:  # there `longest_edge` counts pixels, too
        area = longest
    if area:
        return isqrt(_LONG * area)
    return longest or _LONG * max(
        _whole(sizes.get(name)) for name in ("shortest_edge", "height", "width")
    )


def _settings(folder: Path) -> dict[str, Any]:
    """Return the settings of the image processor; new folders keep them among those of the processor."""
    own = _read(folder / "preprocessor_config.json")
    shared = _read(folder / "processor_config.json").get("image_processor")
    return own or (shared if isinstance(shared, dict) else {})


def _read(path: Path) -> dict[str, Any]:
    """Return what a file holds. One that is damaged is named when the processor is loaded, which is in time."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _whole(value: Any) -> int:
    return max(0, value) if isinstance(value, int) else 0
