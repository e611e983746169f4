"""llama.cpp through its C interface: one context, a sequence for each prompt, a shared prefix computed once."""

from __future__ import annotations

import importlib.metadata
import time
from pathlib import Path

import llama_cpp as llama
import numpy as np

from .player import Job, Player, play

__all__ = ["LlamaContext", "load", "prepare"]

_SOURCE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_TARGET = "SmolLM2-135M-Instruct.{}.gguf"
_FILE_TYPES = {"Q4_0": llama.LLAMA_FTYPE_MOSTLY_Q4_0, "Q8_0": llama.LLAMA_FTYPE_MOSTLY_Q8_0}
_BEST = "Q4_0"
"""The 4 bits for which llama.cpp repacks the weights, and so its fastest; the file itself has Q4_1."""
_BATCH = 2048
_WORTH_SHARING = 16


def prepare(models: Path) -> None:
    """Write the embedded file anew in the formats that run fastest."""
    for variant, file_type in _FILE_TYPES.items():
        target = models / _TARGET.format(variant)
        if target.exists():
            continue
        params = llama.llama_model_quantize_default_params()
        params.ftype, params.allow_requantize = file_type, True
        partial = target.with_suffix(".partial")
        failed = llama.llama_model_quantize(
            bytes(models / _SOURCE), bytes(partial), llama.ctypes.byref(params)
        )
        if failed:
            raise SystemExit(f"llama.cpp could not write {target}: code {failed}")
        partial.rename(target)


class LlamaContext:
    """Greedy decoding of many sequences in one context. Sequence i is prompt i."""

    def __init__(self, path: Path, job: Job) -> None:
        """Load the file and make room for the longest of the job's repetitions."""
        llama.llama_backend_init()
        self._model = llama.llama_model_load_from_file(
            bytes(path), llama.llama_model_default_params()
        )
        if not self._model:
            raise SystemExit(f"llama.cpp cannot load {path}")
        vocab = llama.llama_model_get_vocab(self._model)
        self._vocab_size = llama.llama_vocab_n_tokens(vocab)
        params = llama.llama_context_default_params()
        shared = min(_shared(each["prompts"]) for each in job.repetitions)
        # One pool of cells lets sequences share a prefix; a part for each is faster where they share nothing.
        params.kv_unified = shared > 0
        params.n_ctx = shared + job.streams * (job.context - shared)
        params.n_ctx += -params.n_ctx % 256
        params.n_batch = _BATCH
        params.n_seq_max = job.streams
        params.n_threads = params.n_threads_batch = job.threads
        self._context = llama.llama_init_from_model(self._model, params)
        if not self._context:
            raise SystemExit(f"llama.cpp has no room for {params.n_ctx} tokens")
        self._memory = llama.llama_get_memory(self._context)
        self._batch = llama.llama_batch_init(_BATCH, 0, 1)

    def answer(self, prompts: list[list[int]], max_tokens: int) -> list[list[float]]:
        """Return for each prompt the times of its tokens."""
        llama.llama_memory_clear(self._memory, True)
        shared = _shared(prompts)
        if shared:
            self._decode([(token, i, 0, False) for i, token in enumerate(prompts[0][:shared])])
            for sequence in range(1, len(prompts)):
                llama.llama_memory_seq_cp(self._memory, 0, sequence, -1, -1)
        tokens = self._decode(
            [
                (prompt[i], i, sequence, i == len(prompt) - 1)
                for sequence, prompt in enumerate(prompts)
                for i in range(shared, len(prompt))
            ]
        )
        times = [time.perf_counter()]
        for done in range(max_tokens - 1):
            tokens = self._decode(
                [
                    (token, len(prompts[sequence]) + done, sequence, True)
                    for sequence, token in enumerate(tokens)
                ]
            )
            times.append(time.perf_counter())
        return [times] * len(prompts)

    def _decode(self, rows: list[tuple[int, int, int, bool]]) -> list[int]:
        """Run (token, position, sequence, wanted) rows; return the likeliest next tokens of the wanted ones."""
        found: list[int] = []
        batch = self._batch
        for start in range(0, len(rows), _BATCH):
            part = rows[start : start + _BATCH]
            batch.n_tokens = len(part)
            for i, (token, position, sequence, wanted) in enumerate(part):
                batch.token[i], batch.pos[i], batch.logits[i] = token, position, wanted
                batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
            if code := llama.llama_decode(self._context, batch):
                raise SystemExit(f"llama_decode failed with {code} on {len(part)} rows")
            wanted_rows = sum(row[3] for row in part)
            if wanted_rows:
                logits = llama.llama_get_logits(self._context)
                shape = (wanted_rows, self._vocab_size)
                found += np.ctypeslib.as_array(logits, shape=shape).argmax(axis=1).tolist()
        return found


def load(job: Job) -> Player:
    """Load the file of the variant: Q4_0, Q4_1 or Q8_0."""
    variant = job.variant or _BEST
    context = LlamaContext(job.models / _TARGET.format(variant), job)
    version = importlib.metadata.version("llama-cpp-python")
    return Player(f"llama.cpp of llama-cpp-python {version}, {variant}", context.answer)


def _shared(prompts: list[list[int]]) -> int:
    """How many tokens all prompts begin with, if those are worth computing once; never a whole prompt."""
    first, last = min(prompts), max(prompts)
    longest = min(map(len, prompts)) - 1 if len(prompts) > 1 else 0
    count = 0
    while count < longest and first[count] == last[count]:
        count += 1
    return count if count >= _WORTH_SHARING else 0


if __name__ == "__main__":
    play(load)
