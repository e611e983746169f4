"""The eyes of a vision-language model: pictures to embeddings, and where they stand for M-RoPE."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernelserve.errors import InvalidRequestError
from kernelserve.model.vision_recipes import VisionRecipe
from kernelserve.wire import WireArray

__all__ = ["ImageData", "VisionModel"]

ImageData = Mapping[str, WireArray]
"""The arguments of the encoder for one image alone."""


class VisionModel:
    """Calls the vision tower and the projector of a transformers model."""

    def __init__(self, module: Any, recipe: VisionRecipe, image_token_id: int) -> None:
        self.image_token_id = image_token_id
        self.uses_mrope = recipe.uses_mrope
        self.bidirectional = recipe.bidirectional
        self.embed_tokens: Callable[[Tensor], Tensor] = module.get_input_embeddings()
        """Looks the embeddings of text tokens up."""
        self._module = module
        self._recipe = recipe

    def can_share(self, first: ImageData, second: ImageData) -> bool:
        """Whether two images can go through the encoder in one call: all but the first sizes are equal."""
        return self._shapes(first) == self._shapes(second)

    @torch.inference_mode()
    def encode(self, images: Sequence[ImageData]) -> list[Tensor]:
        """Return the embeddings [n, hidden] of each image; any two of them must be able to share.

        Raises InvalidRequestError if the arguments are not those of the model; whatever torch raises
        means that they do not belong together.
        """
        arguments: dict[str, Tensor] = {}
        for name in self._names(images[0]):
            parts = [self._tensor(name, image[name]) for image in images]
            arguments[name] = torch.cat(parts).to(self._module.device)
        if arguments["pixel_values"].is_floating_point():
            arguments["pixel_values"] = arguments["pixel_values"].to(self._module.dtype)
        output = self._module.get_image_features(**self._recipe.derive(arguments), return_dict=True)
        features = list(output.pooler_output)
        counts = [self._shape("pixel_values", image["pixel_values"])[0] for image in images]
        if len(features) == sum(counts) != len(images):  # some are several crops
            features = [torch.cat(list(part)) for part in _split(features, counts)]
        if len(features) != len(images):
            raise InvalidRequestError(f"the encoder made {len(features)} of {len(images)} images")
        return [_own(feature.reshape(-1, feature.shape[-1])) for feature in features]

    def embed(self, input_ids: Tensor) -> Tensor:
        """Return the embeddings [T, hidden] of text tokens [T]."""
        return self.embed_tokens(input_ids)

    def mrope_positions(
        self, token_ids: NDArray[np.int64], is_image: NDArray[np.bool_], images: Sequence[ImageData]
    ) -> NDArray[np.int64]:
        """Return time, row and column [3, T] of each token of a prompt with images.

        A text token behind them has three equal positions, one above the largest before it. Raises
        InvalidRequestError if the grids of the images do not match `is_image`.
        """
        parts = [self._tensor("image_grid_thw", image["image_grid_thw"]) for image in images]
        grids = torch.cat(parts)
        merged = self._module.config.vision_config.spatial_merge_size**2
        if int(grids.prod(dim=-1).sum()) != merged * int(is_image.sum()):
            raise InvalidRequestError(
                f"image_grid_thw {grids.tolist()} is not of {int(is_image.sum())} embeddings"
            )
        positions, _ = self._module.model.get_rope_index(
            torch.from_numpy(token_ids)[None],
            mm_token_type_ids=torch.from_numpy(is_image.astype(np.int64))[None],
            image_grid_thw=grids,
        )
        result: NDArray[np.int64] = positions[:, 0].numpy()
        return result

    def _names(self, image: ImageData) -> list[str]:
        names = image.keys() - self._recipe.ignored
        missing = self._recipe.dims.keys() - self._recipe.optional - names
        unknown = names - self._recipe.dims.keys()
        if missing or unknown:
            raise InvalidRequestError(
                f"it has {', '.join(sorted(names)) or 'nothing'}, where the model takes "
                f"{', '.join(sorted(self._recipe.dims))}"
            )
        return sorted(names)

    def _shapes(self, image: ImageData) -> dict[str, tuple[int, ...]]:
        """The sizes that must be equal for images to be joined."""
        names = image.keys() - self._recipe.ignored
        return {name: self._shape(name, image[name])[1:] for name in names}

    def _shape(self, name: str, array: WireArray) -> tuple[int, ...]:
        """The shape with the dimension that counts the images, which may be left out."""
        shape = array.shape
        return (1, *shape) if len(shape) == self._recipe.dims.get(name, 0) - 1 else shape

    def _tensor(self, name: str, array: WireArray) -> Tensor:
        shape = self._shape(name, array)
        wanted = self._recipe.dims[name]
        if len(shape) != wanted or 0 in shape:
            raise InvalidRequestError(
                f"its {name} has the shape {list(array.shape)}, where the model takes {wanted} "
                "dimensions"
            )
        values = np.frombuffer(array.data, dtype=array.dtype).reshape(shape)
        return torch.from_numpy(values.copy())


def _own(feature: Tensor) -> Tensor:
    """A copy, if the memory holds more: else one image that is kept would keep all that were encoded with it."""
    held, used = feature.untyped_storage().nbytes(), feature.numel() * feature.element_size()
    return feature.clone() if held > used else feature


def _split(features: list[Tensor], counts: list[int]) -> Iterator[list[Tensor]]:
    remaining = iter(features)
    for count in counts:
        yield list(islice(remaining, count))
