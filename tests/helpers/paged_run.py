"""Feeds token ids to a LoadedModel through a paged cache, in chosen chunks and company."""

from __future__ import annotations

import torch

from kernelserve.attention import AttentionBackend, AttentionMetadata
from kernelserve.attention.torch_backend import TorchAttention
from kernelserve.model.loaded_model import LoadedModel

BLOCK_SIZE = 4
NUM_BLOCKS = 128


class PagedRun:
    """Texts that grow step by step. Unwritten cache is NaN; blocks of the texts are interleaved."""

    def __init__(
        self,
        model: LoadedModel,
        num_texts: int,
        max_len: int = 80,
        backend: AttentionBackend | None = None,
    ) -> None:
        self.model = model
        backend = backend or TorchAttention()
        for cache in model.allocate(backend, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE):
            cache.key.fill_(float("nan"))
            cache.value.fill_(float("nan"))
        per_text = -(-max_len // BLOCK_SIZE)
        blocks = torch.arange(1, 1 + num_texts * per_text, dtype=torch.int32)
        self.table = blocks.view(per_text, num_texts).T.contiguous()
        self.lens = [0] * num_texts

    def step(
        self, rows: dict[int, list[int]], logits_rows: list[int] | None = None
    ) -> dict[int, torch.Tensor]:
        """Run one row of tokens; return the logits of every token, by text.

        With `logits_rows` only those rows of the only text.
        """
        ids, positions, slots, ends = [], [], [], []
        for text, tokens in rows.items():
            here = torch.arange(self.lens[text], self.lens[text] + len(tokens))
            ids.append(torch.tensor(tokens))
            positions.append(here)
            slots.append(
                self.table[text][here // BLOCK_SIZE].long() * BLOCK_SIZE + here % BLOCK_SIZE
            )
            self.lens[text] += len(tokens)
            ends.append(self.lens[text])
        metadata = AttentionMetadata.build(
            [len(tokens) for tokens in rows.values()],
            ends,
            self.table[list(rows)],
            torch.cat(slots),
            block_size=BLOCK_SIZE,
        )
        asked = list(range(metadata.num_tokens)) if logits_rows is None else logits_rows
        logits = self.model.forward(
            torch.cat(ids), torch.cat(positions), metadata, torch.tensor(asked, dtype=torch.int64)
        )
        if logits_rows is not None:
            return dict.fromkeys(rows, logits)
        parts = logits.split([len(tokens) for tokens in rows.values()])
        return dict(zip(rows, parts, strict=True))

    def feed(self, text: int, tokens: list[int], chunk: int) -> torch.Tensor:
        """Run one text alone in chunks; return all its logits."""
        parts = [
            self.step({text: tokens[i : i + chunk]})[text] for i in range(0, len(tokens), chunk)
        ]
        return torch.cat(parts)
