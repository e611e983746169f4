"""Chooses one token for each row of logits."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from kernelserve.protocol import LogprobsLists
from kernelserve.worker.logprobs import gather_logprobs, to_wire
from kernelserve.worker.noise import gumbel_noise
from kernelserve.worker.sampling_metadata import SamplingMetadata
from kernelserve.worker.top_k_top_p import apply_min_p, apply_top_k, apply_top_p

__all__ = ["Sampler", "SamplerOutput"]


@dataclass(slots=True)
class SamplerOutput:
    """What came out for each row: a token, or the reason why there is none."""

    token_ids: list[int]
    logprobs: dict[int, LogprobsLists] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)


class Sampler:
    """Turns logits into tokens, in this order, all in float32:

    raw log-probabilities; allowed ids, logit bias, min_tokens; penalties; bad words; for greedy
    rows the argmax; for the others temperature, min_p, top-k, top-p and the argmax after adding
    Gumbel noise, which is a function of (seed, position). Each row is computed by itself: what
    else is in the batch has no influence.
    """

    def __init__(self, *, logprobs_mode: str = "raw_logprobs") -> None:
        self._raw_logprobs = logprobs_mode == "raw_logprobs"

    def __call__(
        self, logits: Tensor, positions: Tensor, metadata: SamplingMetadata
    ) -> SamplerOutput:
        """Sample from `logits` [R, vocab], which may be changed.

        `positions` [R] are those of the tokens to come.
        """
        logits = logits.float()
        errors = _take_out(logits, "the model's logits are not finite numbers", finite=True)
        logprobs = self._logprobs(logits, metadata) if self._raw_logprobs else {}
        if _process(logits, metadata):
            reason = "no token is left: allowed_token_ids, bad_words and min_tokens forbid all"
            errors = _take_out(logits, reason) | errors
        tokens = self._choose(logits, positions, metadata)
        if not self._raw_logprobs:
            logprobs = self._logprobs(logits, metadata)
        output = SamplerOutput(tokens.tolist(), errors=errors)
        for num_logprobs, rows in metadata.logprob_rows.items():
            arrays = gather_logprobs(logprobs[num_logprobs], tokens[rows], num_logprobs)
            for i, row in enumerate(rows):
                if row not in errors:
                    output.logprobs[row] = to_wire(arrays, i)
        return output

    def _logprobs(self, logits: Tensor, metadata: SamplingMetadata) -> dict[int, Tensor]:
        """Number of alternatives -> log-probabilities of the rows that want so many."""
        return {k: logits[rows].log_softmax(-1) for k, rows in metadata.logprob_rows.items()}

    def _choose(self, logits: Tensor, positions: Tensor, metadata: SamplingMetadata) -> Tensor:
        """Return the tokens [R]. Rows that draw are left in `logits` as they were drawn from."""
        rows = metadata.random_rows
        if not rows:
            return _best(logits)
        if len(rows) == len(logits):
            return _draw(logits, positions, metadata)
        tokens = _best(logits)
        drawn_from = logits[rows]
        tokens[rows] = _draw(drawn_from, positions[rows], metadata)
        if not self._raw_logprobs:
            logits[rows] = drawn_from
        return tokens


def _process(logits: Tensor, metadata: SamplingMetadata) -> bool:
    """Apply in place what can change the most probable token; return whether any was forbidden."""
    masks = metadata.token_masks
    if masks is not None:
        masks.apply(logits)
    if metadata.penalties is not None:
        metadata.penalties.apply(logits)
    if masks is not None:
        masks.apply_bad_words(logits)
    return masks is not None


def _draw(logits: Tensor, positions: Tensor, metadata: SamplingMetadata) -> Tensor:
    """Draw one token from each row of `logits`, which is changed to what was drawn from."""
    logits /= metadata.temperature[:, None]
    if metadata.min_p is not None:
        apply_min_p(logits, metadata.min_p)
    if metadata.top_k is not None:
        apply_top_k(logits, metadata.top_k)
    if metadata.top_p is not None:
        apply_top_p(logits, metadata.top_p)
    noise = gumbel_noise(metadata.seeds, positions, logits.shape[-1])
    return _best(noise.add_(logits))


def _best(scores: Tensor) -> Tensor:
    """Return the index [R] of the largest score of each row; of the first, if several are."""
    if scores.device.type == "cpu":  # numpy takes an eighth of torch's time
        return torch.from_numpy(scores.numpy().argmax(axis=-1))
    return scores.argmax(dim=-1)


def _take_out(logits: Tensor, reason: str, *, finite: bool = False) -> dict[int, str]:
    """Zero in place the rows that no token can come from, and return row -> reason."""
    peak = logits.amax(dim=-1)  # nan if any is
    bad = ~peak.isfinite() if finite else peak == -torch.inf
    rows: list[int] = bad.nonzero().flatten().tolist()
    if rows:
        logits[rows] = 0.0
    return dict.fromkeys(rows, reason)
