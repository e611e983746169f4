"""Encodes images, keeps their embeddings, and puts them where the tokens of a step want them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernelserve.model.vision_model import VisionModel
from kernelserve.protocol import MultiModalFeatureSpec
from kernelserve.worker.step_inputs import StepInputs

__all__ = ["EncoderRunner"]

logger = logging.getLogger(__name__)


class EncoderRunner:
    """The physical side of the encoder cache: it keeps what the plans say, and frees what they say.

    An image that cannot be encoded fails alone: it is in `failed` until the next `encode`, and the
    requests of the step that have it among their computed tokens get an error.
    """

    def __init__(self, vision: VisionModel) -> None:
        self._vision = vision
        self._outputs: dict[str, Tensor] = {}
        """Content hash -> embeddings [n, hidden]"""
        self.failed: dict[str, str] = {}
        """Content hash -> why it could not be encoded in this step."""
        self.encode_seconds = 0.0
        """Of this step."""

    @property
    def num_embeds(self) -> int:
        """Embeddings that are kept."""
        return sum(len(output) for output in self._outputs.values())

    def free(self, mm_hashes: Iterable[str]) -> None:
        """Drop outputs; unknown hashes are ignored."""
        for mm_hash in mm_hashes:
            self._outputs.pop(mm_hash, None)

    def encode(self, features: list[MultiModalFeatureSpec]) -> None:
        """Encode images, those that can share a call together, in their order."""
        self.failed = {}
        self.encode_seconds = 0.0
        if not features:
            return
        began = time.perf_counter()
        for group in self._groups(features):
            if not self._try_encode(group) and len(group) > 1:
                # One of them is bad: find out which.
                for feature in group:
                    self.failed.pop(feature.mm_hash)
                    self._try_encode([feature])
        _wait_for(self._outputs.values())
        self.encode_seconds = time.perf_counter() - began

    def merge(self, inputs: StepInputs, input_ids: Tensor) -> Tensor | None:
        """Return the embeddings [T, hidden] of a step, those of images in their places.

        None if no token of the step takes one. A request whose embeddings are not there gets an
        error; its tokens are computed all the same, and nobody reads them.
        """
        rows, parts = self._gather(inputs)
        if not parts:
            return None
        where = torch.from_numpy(np.concatenate(rows)).to(input_ids.device)
        # The id of the placeholder may be outside the vocabulary.
        embeds = self._vision.embed(input_ids.index_fill(0, where, 0))
        return embeds.index_copy(0, where, torch.cat(parts).to(embeds.dtype))

    def _gather(self, inputs: StepInputs) -> tuple[list[NDArray[np.int64]], list[Tensor]]:
        rows: list[NDArray[np.int64]] = []
        parts: list[Tensor] = []
        ends = np.cumsum(inputs.query_lens)
        for state, row_end, query_len, end in zip(
            inputs.states, ends, inputs.query_lens, inputs.seq_lens, strict=True
        ):
            if state.images is None:
                continue
            if state.error is None:
                state.error = self._find_problem(state.images.features, int(end))
            if state.error is not None:
                continue
            for piece in state.images.slices(int(end - query_len), int(end)):
                output = self._outputs.get(piece.mm_hash)
                if output is None:
                    state.error = "the embeddings of an image of the prompt are not there"
                    break
                rows.append(piece.positions + int(row_end - end))
                parts.append(output[piece.first : piece.last])
        return rows, parts

    def _find_problem(self, features: list[MultiModalFeatureSpec], end: int) -> str | None:
        """Why a request cannot use one of its images in the first `end` tokens.

        Also if it takes no embedding of it in this step: it may share blocks with one that does.
        """
        for feature in features:
            if feature.position.offset >= end:
                break
            problem, output = self.failed.get(feature.mm_hash), self._outputs.get(feature.mm_hash)
            if output is not None and len(output) != feature.position.num_embeds:
                problem = _mismatch(len(output), feature.position.num_embeds)
            if problem is not None:
                return f"an image of the prompt cannot be used: {problem}"
        return None

    def _groups(
        self, features: list[MultiModalFeatureSpec]
    ) -> Iterator[list[MultiModalFeatureSpec]]:
        """Split into runs of images that can share a call."""
        group: list[MultiModalFeatureSpec] = []
        for feature in features:
            if group and not self._vision.can_share(group[0].data or {}, feature.data or {}):
                yield group
                group = []
            group.append(feature)
        yield group

    def _try_encode(self, group: list[MultiModalFeatureSpec]) -> bool:
        try:
            outputs = self._vision.encode([feature.data or {} for feature in group])
        except Exception as error:
            logger.warning("%d images cannot be encoded", len(group), exc_info=True)
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            self.failed.update(dict.fromkeys((feature.mm_hash for feature in group), reason))
            return False
        for feature, output in zip(group, outputs, strict=True):
            if len(output) == feature.position.num_embeds:
                self._outputs[feature.mm_hash] = output
            else:
                self.failed[feature.mm_hash] = _mismatch(len(output), feature.position.num_embeds)
        return True


def _mismatch(num_embeds: int, num_places: int) -> str:
    return f"it has {num_embeds} embeddings, but the prompt has {num_places} places for them"


def _wait_for(outputs: Iterable[Tensor]) -> None:
    """Let the clock stop when the work is done, not when it is queued."""
    device = next((output.device for output in outputs), None)
    if device is not None and device.type == "cuda":
        torch.cuda.synchronize(device)
