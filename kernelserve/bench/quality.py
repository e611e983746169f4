"""How close the numbers of an engine's model are to transformers in float32, on a fixed text."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelserve.config import EngineConfig

if TYPE_CHECKING:
    import torch

    from kernelserve.model.loaded_model import LoadedModel

__all__ = ["measure_quality"]

_TEXT = Path(__file__).with_name("quality_text.txt")
_BLOCK_SIZE = 16


def measure_quality(model: str, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield one result: perplexity of both, and how far their next-token distributions lie apart.

    `kl` is the Kullback-Leibler divergence from the reference, in nats for each token. The reference are the weights of
    the checkpoint, unpacked to float32, in transformers' own layers on the CPU.
    """
    import torch

    reference, ids = _logprobs(EngineConfig(model=model, dtype="float32", fuse_layers=False))
    got, _ = _logprobs(EngineConfig(model=model, **options))
    divergence = (reference.exp() * (reference - got)).sum(-1)
    agrees = reference.argmax(-1) == got.argmax(-1)
    with torch.inference_mode():
        yield {
            "bench": "quality",
            "model": model,
            "tokens": len(ids),
            "reference_perplexity": _perplexity(reference, ids),
            "perplexity": _perplexity(got, ids),
            "kl_mean": float(divergence.mean()),
            "kl_max": float(divergence.max()),
            "greedy_agreement": float(agrees.double().mean()),
            "largest_logprob_error": float(
                (reference - got)[reference > math.log(1e-6)].abs().max()
            ),
        }


def _logprobs(config: EngineConfig) -> tuple[torch.Tensor, list[int]]:
    """Log-probabilities [T, vocab] in float64 after each token of the text, and its ids."""
    import torch
    from tokenizers import Tokenizer

    from kernelserve.model.loader import load_model

    with torch.inference_mode():
        model = load_model(config, lambda *_: None)
        tokenizer = Tokenizer.from_file(str(Path(model.tokenizer_dir) / "tokenizer.json"))
        ids = tokenizer.encode(_TEXT.read_text()).ids
        return _forward(model, ids).double().log_softmax(-1), ids


def _forward(model: LoadedModel, ids: list[int]) -> torch.Tensor:
    """Logits [T, vocab] of a text, in one pass."""
    import torch

    from kernelserve.attention import AttentionMetadata
    from kernelserve.attention.torch_backend import TorchAttention

    count = len(ids)
    blocks = -(-count // _BLOCK_SIZE)
    model.allocate(TorchAttention(), num_blocks=1 + blocks, block_size=_BLOCK_SIZE)
    positions = torch.arange(count)
    table = torch.arange(1, 1 + blocks, dtype=torch.int32)[None]
    metadata = AttentionMetadata.build(
        [count], [count], table, positions + _BLOCK_SIZE, block_size=_BLOCK_SIZE
    )
    logits = model.forward(torch.tensor(ids), positions, metadata, positions)
    model.detach()
    return logits


def _perplexity(logprobs: torch.Tensor, ids: list[int]) -> float:
    import torch

    following = torch.tensor(ids[1:])[:, None]
    return math.exp(-float(logprobs[:-1].gather(-1, following).mean()))
