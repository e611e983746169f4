"""A short text through a model that is ready to run steps, in chunks and beside another text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kernelserve.attention import AttentionBackend, AttentionMetadata
from kernelserve.attention.torch_backend import TorchAttention

if TYPE_CHECKING:
    from kernelserve.model.loaded_model import LoadedModel

__all__ = ["relative_error", "trial_logits", "trial_texts"]

_CHUNKS = (11, 1, 12)


def trial_texts(model: LoadedModel) -> torch.Tensor:
    """Return two texts [2, T] of random tokens, always the same."""
    generator = torch.Generator().manual_seed(0)
    size = (2, sum(_CHUNKS))
    return torch.randint(0, model.vocab_size, size, generator=generator).to(model.device)


def trial_logits(
    model: LoadedModel, backend: AttentionBackend | None = None, *, block_size: int = 8
) -> torch.Tensor:
    """Return the logits [T, vocab] of the first text, in float32; both texts go through the same steps.

    The attention runs on `backend`, None: in torch.
    """
    texts = trial_texts(model)
    blocks = -(-texts.shape[1] // block_size)
    table = torch.arange(1, 1 + 2 * blocks, dtype=torch.int32, device=model.device).view(2, blocks)
    model.allocate(backend or TorchAttention(), num_blocks=1 + 2 * blocks, block_size=block_size)
    parts, done = [], 0
    for size in _CHUNKS:
        positions = torch.arange(done, done + size, device=model.device)
        done += size
        slots = table[:, positions // block_size].long() * block_size + positions % block_size
        metadata = AttentionMetadata.build(
            [size, size], [done, done], table, slots.flatten(), block_size=block_size
        )
        rows = texts[:, done - size : done].flatten()
        asked = torch.arange(size, device=model.device)
        parts.append(model.forward(rows, positions.repeat(2), metadata, asked).float())
    model.detach()
    return torch.cat(parts)


def relative_error(got: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the norm of the difference as a share of the norm; nan if either holds one."""
    return float((got - expected).norm() / expected.norm())
