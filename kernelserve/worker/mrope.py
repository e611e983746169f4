"""M-RoPE: tokens of images stand in time, rows and columns, those of text on the diagonal."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelserve.errors import InvalidRequestError
from kernelserve.model.vision_model import VisionModel
from kernelserve.worker.request_state import RequestState
from kernelserve.worker.step_inputs import StepInputs

__all__ = ["locate_images", "rope_positions"]


def locate_images(vision: VisionModel, state: RequestState, token_ids: NDArray[np.int64]) -> None:
    """Compute the three positions of all known tokens of a request with images, once.

    What cannot be placed becomes the error of the request.
    """
    images = state.images
    if images is None or not vision.uses_mrope:
        return
    try:
        images.rope_positions = vision.mrope_positions(
            token_ids,
            images.mask(len(token_ids)),
            [feature.data or {} for feature in images.features],
        )
    except (InvalidRequestError, KeyError, RuntimeError, StopIteration, TypeError) as error:
        state.error = f"the images of the prompt cannot be placed: {error!r}"


def rope_positions(inputs: StepInputs) -> NDArray[np.int64]:
    """Return the positions of a step: [T], or [3, T] if a request of it has images."""
    if all(state.images is None or state.images.rope_positions is None for state in inputs.states):
        return inputs.positions
    result = np.tile(inputs.positions, (3, 1))
    row = 0
    for state, query_len in zip(inputs.states, inputs.query_lens, strict=True):
        here = slice(row, row + int(query_len))
        row += int(query_len)
        if state.images is not None and state.images.rope_positions is not None:
            result[:, here] = _look_up(state.images.rope_positions, inputs.positions[here])
    return result


def _look_up(known: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Tokens behind the known ones go on from the largest of these, in steps of one."""
    num_known = known.shape[1]
    inside = known[:, np.minimum(positions, num_known - 1)]
    behind = known.max() + 1 + positions - num_known
    return np.where(positions < num_known, inside, behind)
