"""What differs between the vision-language models of transformers: the arguments of their encoders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

__all__ = ["VISION_RECIPES", "VisionRecipe"]

Arguments = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class VisionRecipe:
    """How `get_image_features` of one model type is called.

    Each argument has one dimension more than a single image needs, the images of a call one after
    the other; for Qwen that dimension of `pixel_values` counts the patches of all images.
    """

    dims: dict[str, int]
    """Name of each argument -> its number of dimensions."""
    optional: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()
    """What the processor tells of an image and the encoder does not need."""
    towers: frozenset[str] = frozenset()
    """Model types of the vision towers that take these; empty: there is only one."""
    derive: Callable[[Arguments], Arguments] = field(default=lambda arguments: arguments)
    """Adds what follows from the rest."""
    bidirectional: bool = False
    """The tokens of an image see each other in both directions: no step may compute only a part of them."""
    uses_mrope: bool = False
    """Positions are three numbers a token: time, row, column."""


def _mark_untiled(arguments: Arguments) -> Arguments:
    """LLaVA-OneVision does not tile the pictures of a prompt with several: one patch, one picture."""
    pixels = arguments["pixel_values"]
    if pixels.shape[1] > 1:
        return arguments
    several = torch.full((len(pixels),), 2, dtype=torch.int64, device=pixels.device)
    return arguments | {"batch_num_images": several}


_FIXED_SIZE = frozenset({"clip_vision_model", "siglip_vision_model"})
_TILES = VisionRecipe(
    {"pixel_values": 5, "pixel_attention_mask": 4},
    optional=frozenset({"pixel_attention_mask"}),
    ignored=frozenset({"rows", "cols"}),
)
_PATCHES = VisionRecipe({"pixel_values": 2, "image_grid_thw": 2}, uses_mrope=True)

VISION_RECIPES: dict[str, VisionRecipe] = {
    "gemma3": VisionRecipe(
        {"pixel_values": 4},
        ignored=frozenset({"num_crops"}),
        towers=_FIXED_SIZE,
        bidirectional=True,
    ),
    "idefics3": _TILES,
    "llava": VisionRecipe({"pixel_values": 4}, towers=_FIXED_SIZE | {"segformer"}),
    "llava_onevision": VisionRecipe(
        {"pixel_values": 5, "image_sizes": 2},
        ignored=frozenset({"batch_num_images"}),
        towers=_FIXED_SIZE,
        derive=_mark_untiled,
    ),
    "qwen2_5_vl": _PATCHES,
    "qwen2_vl": _PATCHES,
    "smolvlm": _TILES,
}
"""Model types whose answers tests compare with transformers token by token."""
