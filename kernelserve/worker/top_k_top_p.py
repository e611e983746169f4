"""min_p, top-k and top-p as thresholds on logits.

Each is a lowest value that survives, so ties at a threshold all survive, and the most probable
token always does. The whole vocabulary is sorted only for rows whose top_p reaches past the best
few hundred tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["apply_min_p", "apply_top_k", "apply_top_p"]

_FEW = 512


def apply_min_p(logits: Tensor, min_p: Tensor) -> None:
    """Forbid in place what is less probable than `min_p` [R] times the most probable token."""
    threshold = logits.amax(dim=-1) + min_p.log()
    logits.masked_fill_(logits < threshold[:, None], -torch.inf)


def apply_top_k(logits: Tensor, top_k: Tensor) -> None:
    """Forbid in place what is below the `top_k`-th value [R]; 0 keeps all."""
    vocab_size = logits.shape[-1]
    k = torch.where(top_k <= 0, vocab_size, top_k).clamp(max=vocab_size)
    limited = k < vocab_size
    if not bool(limited.any()):
        return
    largest = int(k[limited].max())
    best = logits.topk(largest, dim=-1).values
    threshold = best.gather(1, k.clamp(max=largest)[:, None] - 1)
    threshold.masked_fill_(~limited[:, None], -torch.inf)
    logits.masked_fill_(logits < threshold, -torch.inf)


def apply_top_p(logits: Tensor, top_p: Tensor) -> None:
    """Forbid in place all but the fewest tokens whose probabilities add up to `top_p` [R]."""
    total = logits.logsumexp(dim=-1, keepdim=True)
    vocab_size = logits.shape[-1]
    few = min(_FEW, vocab_size)
    threshold, reached = _nucleus_threshold(logits.topk(few, dim=-1).values, total, top_p)
    missed = ((top_p < 1) & ~reached).nonzero().flatten()
    if len(missed) and few < vocab_size:
        ordered = logits[missed].sort(dim=-1, descending=True).values
        threshold[missed], _ = _nucleus_threshold(ordered, total[missed], top_p[missed])
    threshold.masked_fill_(top_p >= 1, -torch.inf)
    logits.masked_fill_(logits < threshold[:, None], -torch.inf)


def _nucleus_threshold(best: Tensor, total: Tensor, top_p: Tensor) -> tuple[Tensor, Tensor]:
    """Return the lowest logit of the nucleus within `best` [R, n], and whether it ends in there."""
    mass = (best - total).exp().cumsum(dim=-1)
    before = torch.cat((torch.zeros_like(mass[:, :1]), mass[:, :-1]), dim=-1)
    size = (before < top_p[:, None]).sum(dim=-1).clamp(min=1)
    return best.gather(1, size[:, None] - 1)[:, 0], mass[:, -1] >= top_p
