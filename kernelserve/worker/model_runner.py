"""Runs the plan of a step on the model, in two phases."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernelserve.attention import AttentionMetadata
from kernelserve.config import EngineConfig
from kernelserve.core.scheduler_output import ModelRunnerOutput, SchedulerOutput
from kernelserve.model.loaded_model import LoadedModel
from kernelserve.worker.encoder_runner import EncoderRunner
from kernelserve.worker.input_batch import InputBatch
from kernelserve.worker.mrope import locate_images, rope_positions
from kernelserve.worker.prompt_logprobs import PromptLogprobs
from kernelserve.worker.sampler import Sampler
from kernelserve.worker.sampling_metadata import SamplingMetadata
from kernelserve.worker.step_inputs import StepInputs

__all__ = ["ModelRunner"]

_MAX_LOGPROBS = 2**24
"""Most prompt log-probabilities that are computed at a time (64 MiB)."""


@dataclass(slots=True)
class _HeldStep:
    """What `execute_model` leaves for `sample_tokens`; None stands for an empty plan."""

    inputs: StepInputs | None = None
    logits: Tensor | None = None
    """[sampled requests, vocab]"""


@dataclass(slots=True)
class _PromptPart:
    """Positions of one prompt from `start` on, and where in the flattened row they are."""

    gathered: PromptLogprobs
    start: int
    indices: NDArray[np.int64]

    def gather(self, logits: Tensor, *, rows_at_once: int) -> None:
        for offset in range(0, len(logits), rows_at_once):
            self.gathered.add(self.start + offset, logits[offset : offset + rows_at_once])


class ModelRunner:
    """Keeps the persistent batch and turns plans into tokens.

    `execute_model` takes over the plan's changes, runs the forward pass and holds the logits;
    `sample_tokens` chooses the tokens and adds them to the batch. A request whose prompt is not yet
    complete gets no token.
    """

    def __init__(self, model: LoadedModel, config: EngineConfig, *, max_model_len: int) -> None:
        self._model = model
        self._block_size = config.block_size
        self._batch = InputBatch(
            max_num_seqs=config.max_num_seqs,
            max_model_len=max_model_len,
            block_size=config.block_size,
            vocab_size=model.vocab_size,
            engine_seed=config.seed,
        )
        self._rows_at_once = max(1, _MAX_LOGPROBS // model.vocab_size)
        self._sampler = Sampler(logprobs_mode=config.logprobs_mode)
        self._encoder = None if model.vision is None else EncoderRunner(model.vision)
        self._metadata: SamplingMetadata | None = None
        self._held: _HeldStep | None = None

    @property
    def num_known_requests(self) -> int:
        """Requests that the runner still holds state of."""
        return len(self._batch)

    @property
    def num_encoder_embeds(self) -> int:
        """Embeddings of images that the runner keeps."""
        return 0 if self._encoder is None else self._encoder.num_embeds

    def execute_model(self, plan: SchedulerOutput) -> None:
        """Run the forward pass of `plan`."""
        assert self._held is None, "execute_model before sample_tokens of the last step"
        for req_id in (*plan.finished_req_ids, *plan.preempted_req_ids):
            self._batch.remove(req_id)
        for new in plan.scheduled_new_reqs:
            state = self._batch.add(new)
            if self._model.vision is not None:
                locate_images(self._model.vision, state, np.asarray(new.token_ids, np.int64))
        self._batch.update(plan.scheduled_cached_reqs)
        if self._encoder is not None:
            self._encoder.free(plan.free_encoder_mm_hashes)
            self._encoder.encode(plan.scheduled_encoder_inputs)
        if not plan.total_num_scheduled_tokens:
            self._held = _HeldStep()
            return
        inputs = self._batch.prepare(plan.num_scheduled_tokens)
        sampled = inputs.last_indices[inputs.sampled]
        prompt_parts = self._prompt_parts(inputs)
        indices = np.concatenate([sampled, *(part.indices for part in prompt_parts)])
        logits = self._forward(inputs, indices)
        end = len(sampled)
        for part in prompt_parts:
            start, end = end, end + len(part.indices)
            part.gather(logits[start:end], rows_at_once=self._rows_at_once)
        self._batch.advance(inputs)
        self._held = _HeldStep(inputs, logits[: len(sampled)])

    def sample_tokens(self) -> ModelRunnerOutput:
        """Choose the tokens of the step that `execute_model` began."""
        held, self._held = self._held, None
        assert held is not None, "sample_tokens without execute_model"
        if held.inputs is None or held.logits is None:
            return ModelRunnerOutput([], [])  # whatever is encoded is for tokens of the same plan
        states = held.inputs.states
        output = ModelRunnerOutput(
            req_ids=[state.req_id for state in states],
            sampled_token_ids=[[] for _ in states],
            errors={state.req_id: state.error for state in states if state.error is not None},
        )
        if self._encoder is not None:
            output.failed_encoder_mm_hashes = list(self._encoder.failed)
            output.encode_time = self._encoder.encode_seconds
        if len(held.logits):
            self._sample(held.inputs, held.logits, output)
        return output

    def _forward(self, inputs: StepInputs, logits_indices: NDArray[np.int64]) -> Tensor:
        """Return the logits [R, vocab] of the tokens at `logits_indices` [R]."""
        metadata = AttentionMetadata.build(
            inputs.query_lens.tolist(),
            inputs.seq_lens.tolist(),
            self._to_device(inputs.block_table),
            self._to_device(inputs.slot_mapping),
            block_size=self._block_size,
            spans=self._bidirectional_spans(inputs),
        )
        input_ids = self._to_device(inputs.input_ids)
        embeds = None if self._encoder is None else self._encoder.merge(inputs, input_ids)
        return self._model.forward(
            input_ids,
            self._to_device(rope_positions(inputs)),
            metadata,
            self._to_device(logits_indices),
            inputs_embeds=embeds,
        )

    def _bidirectional_spans(self, inputs: StepInputs) -> list[list[tuple[int, int]]] | None:
        """The images whose tokens see each other, of each request; None if there are none."""
        vision = self._model.vision
        if vision is None or not vision.bidirectional:
            return None
        starts = inputs.seq_lens - inputs.query_lens
        return [
            [] if state.images is None else state.images.spans(int(start), int(end))
            for state, start, end in zip(inputs.states, starts, inputs.seq_lens, strict=True)
        ]

    def _prompt_parts(self, inputs: StepInputs) -> list[_PromptPart]:
        """Return the positions of this step whose logits prompt logprobs are gathered from."""
        parts = []
        for i, state in enumerate(inputs.states):
            if state.prompt_logprobs is not None and state.error is None:
                count = int(inputs.query_lens[i])
                start = int(inputs.seq_lens[i]) - count
                first = int(inputs.last_indices[i]) - count + 1
                num_rows = state.prompt_logprobs.num_rows(start, count)
                indices = np.arange(first, first + num_rows)
                parts.append(_PromptPart(state.prompt_logprobs, start, indices))
        return parts

    def _sample(self, inputs: StepInputs, logits: Tensor, output: ModelRunnerOutput) -> None:
        """Add tokens, logprobs and errors of the sampled requests to `output` and the batch."""
        states = [inputs.states[i] for i in inputs.sampled]
        if self._metadata is None or self._metadata.states != states:
            self._metadata = SamplingMetadata.build(states, self._model.vocab_size, logits.device)
        positions = self._to_device(inputs.seq_lens[inputs.sampled])
        sampled = self._sampler(logits, positions, self._metadata)
        for row, (i, state) in enumerate(zip(inputs.sampled, states, strict=True)):
            if row in sampled.errors:
                output.errors.setdefault(state.req_id, sampled.errors[row])
            if state.req_id in output.errors:
                continue
            token_id = sampled.token_ids[row]
            self._batch.append_token(state, token_id)
            output.sampled_token_ids[i] = [token_id]
            if row in sampled.logprobs:
                output.logprobs[state.req_id] = sampled.logprobs[row]
            if state.prompt_logprobs is not None:
                output.prompt_logprobs[state.req_id] = state.prompt_logprobs.to_wire()
                state.prompt_logprobs = None

    def _to_device(self, array: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(array).to(self._model.device)
