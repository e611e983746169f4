"""The persistent batch: tokens, blocks and options of every request that the runner knows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelserve.core.scheduler_output import CachedRequestData, NewRequestData
from kernelserve.worker.request_state import RequestState
from kernelserve.worker.step_inputs import StepInputs

__all__ = ["InputBatch"]


class InputBatch:
    """One row for each known request, kept until it finishes or is preempted, scheduled or not.

    The plan of a step is then only an index into these arrays. Rows are reused, and more are added
    when more requests run than were expected.
    """

    def __init__(
        self,
        *,
        max_num_seqs: int,
        max_model_len: int,
        block_size: int,
        vocab_size: int,
        engine_seed: int = 0,
    ) -> None:
        self._block_size = block_size
        self._vocab_size = vocab_size
        self._engine_seed = engine_seed
        self._states: dict[str, RequestState] = {}
        self._free_rows = list(range(max_num_seqs - 1, -1, -1))
        max_blocks = -(-max_model_len // block_size)
        # unused entries stay 0: they point at the null block
        self._token_ids = np.zeros((max_num_seqs, max_model_len + 1), np.int32)
        self._block_table = np.zeros((max_num_seqs, max_blocks), np.int32)
        self._num_tokens = np.zeros(max_num_seqs, np.int64)
        self._num_computed = np.zeros(max_num_seqs, np.int64)
        self._num_blocks = np.zeros(max_num_seqs, np.int64)

    def __len__(self) -> int:
        return len(self._states)

    def add(self, new: NewRequestData) -> RequestState:
        """Take in a request that is new, or resumes after preemption."""
        assert new.req_id not in self._states, f"{new.req_id} is new but known"
        if not self._free_rows:
            self._grow()
        row = self._free_rows.pop()
        state = RequestState.from_new_request(new, row, self._engine_seed)
        self._states[new.req_id] = state
        ids = self._checked_ids(new, state)
        assert state.prompt_logprobs is None or new.num_computed_tokens == 0, (
            "a hit leaves out rows"
        )
        self._token_ids[row, : len(ids)] = ids
        self._num_tokens[row] = len(ids)
        self._num_computed[row] = new.num_computed_tokens
        self._num_blocks[row] = 0
        self._append_blocks(row, new.block_ids)
        return state

    def update(self, cached: CachedRequestData) -> None:
        """Take over what changed for known requests."""
        parts = zip(cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True)
        for req_id, block_ids, num_computed_tokens in parts:
            row = self._states[req_id].row
            assert num_computed_tokens == self._num_computed[row], (
                f"{req_id}: the plan says {num_computed_tokens} computed tokens, "
                f"the runner has {self._num_computed[row]}"
            )
            if block_ids:
                self._append_blocks(row, block_ids)

    def remove(self, req_id: str) -> None:
        """Forget a request; unknown ids are ignored."""
        state = self._states.pop(req_id, None)
        if state is not None:
            self._block_table[state.row, : self._num_blocks[state.row]] = 0
            self._free_rows.append(state.row)

    def prepare(self, num_scheduled_tokens: dict[str, int]) -> StepInputs:
        """Gather the inputs of a step; the counts must not be empty."""
        states = [self._states[req_id] for req_id in num_scheduled_tokens]
        rows = np.fromiter((s.row for s in states), np.int64, len(states))
        counts = np.fromiter(num_scheduled_tokens.values(), np.int64, len(states))
        starts = self._num_computed[rows]
        ends = starts + counts
        assert (counts > 0).all()
        assert (ends <= self._num_tokens[rows]).all(), "more tokens scheduled than there are"
        assert (ends <= self._num_blocks[rows] * self._block_size).all(), "too few blocks"
        first_index = np.cumsum(counts) - counts
        positions = np.arange(counts.sum()) + np.repeat(starts - first_index, counts)
        token_rows = np.repeat(rows, counts)
        blocks = self._block_table[token_rows, positions // self._block_size].astype(np.int64)
        max_blocks = -(-int(ends.max()) // self._block_size)
        return StepInputs(
            states=states,
            rows=rows,
            query_lens=counts,
            seq_lens=ends,
            input_ids=self._token_ids[token_rows, positions].astype(np.int64),
            positions=positions,
            slot_mapping=blocks * self._block_size + positions % self._block_size,
            block_table=self._block_table[rows, :max_blocks],
            sampled=(ends == self._num_tokens[rows]).nonzero()[0],
        )

    def advance(self, inputs: StepInputs) -> None:
        """Note that the forward pass of `inputs` is done."""
        self._num_computed[inputs.rows] = inputs.seq_lens

    def append_token(self, state: RequestState, token_id: int) -> None:
        """Add a generated token."""
        state.output_token_ids.append(token_id)
        self._token_ids[state.row, self._num_tokens[state.row]] = token_id
        self._num_tokens[state.row] += 1

    def _checked_ids(self, new: NewRequestData, state: RequestState) -> NDArray[np.int64]:
        """The token ids, 0 for each that has no embedding of its own. A wrong one is an error."""
        ids = np.asarray(new.token_ids, np.int64)
        is_wrong = (ids < 0) | (ids >= self._vocab_size)
        if state.images is not None:
            # The id that stands for an image may be outside the vocabulary, but has no logprob then.
            is_image = state.images.mask(len(ids))
            if state.prompt_logprobs is None:
                is_wrong &= ~is_image
            ids[is_image] = 0
        if is_wrong.any():
            wrong = new.token_ids[int(is_wrong.argmax())]
            state.error = f"token id {wrong} is outside the vocabulary of {self._vocab_size}"
            ids[is_wrong] = 0
        return ids

    def _append_blocks(self, row: int, block_ids: list[int]) -> None:
        start = self._num_blocks[row]
        self._block_table[row, start : start + len(block_ids)] = block_ids
        self._num_blocks[row] += len(block_ids)

    def _grow(self) -> None:
        old = len(self._num_tokens)

        def doubled(array: NDArray[np.int32]) -> NDArray[np.int32]:
            result = np.zeros((2 * old, *array.shape[1:]), array.dtype)
            result[:old] = array
            return result

        self._token_ids = doubled(self._token_ids)
        self._block_table = doubled(self._block_table)
        self._num_tokens = np.concatenate((self._num_tokens, np.zeros(old, np.int64)))
        self._num_computed = np.concatenate((self._num_computed, np.zeros(old, np.int64)))
        self._num_blocks = np.concatenate((self._num_blocks, np.zeros(old, np.int64)))
        self._free_rows.extend(range(2 * old - 1, old - 1, -1))
