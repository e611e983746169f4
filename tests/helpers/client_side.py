"""The client's half without an engine: a ready message, a sink, hand-made outputs."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from kernelserve.client.input_processor import InputProcessor, ProcessedRequest
from kernelserve.client.output_processor import OutputProcessor
from kernelserve.client.tokenizer import ClientTokenizer
from kernelserve.config import EngineConfig
from kernelserve.outputs import CompletionOutput, RequestOutput
from kernelserve.protocol import (
    PROTOCOL_VERSION,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineReady,
    FinishReason,
    LogprobsLists,
)
from kernelserve.sampling_params import RequestOutputKind, SamplingParams
from kernelserve.wire import WireArray


def make_ready(**changes: Any) -> EngineReady:
    """What an engine with a model of 500 tokens and a context of 128 says."""
    fields: dict[str, Any] = {
        "protocol_version": PROTOCOL_VERSION,
        "engine_id": "e",
        "version": "0",
        "pid": 1,
        "client_index": 0,
        "config": EngineConfig(),
        "model_type": "llama",
        "max_model_len": 128,
        "vocab_size": 500,
        "block_size": 16,
        "num_gpu_blocks": 100,
        "kv_cache_bytes": 0,
        "weight_bytes": 0,
        "tokenizer_dir": "",
        "eos_token_ids": [2],
    }
    return EngineReady(**fields | changes)


class Sink:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.outputs: list[RequestOutput] = []
        self.errors: list[Exception] = []

    def put(self, output: RequestOutput) -> None:
        self.outputs.append(output)

    def fail(self, error: Exception) -> None:
        self.errors.append(error)

    @property
    def last(self) -> RequestOutput:
        return self.outputs[-1]

    def joined(self, index: int = 0) -> CompletionOutput:
        """One answer of a DELTA stream, put together."""
        parts = [c for o in self.outputs for c in o.outputs if c.index == index]
        logprobs = [entry for part in parts for entry in part.logprobs or ()]
        return CompletionOutput(
            index,
            "".join(part.text for part in parts),
            [i for part in parts for i in part.token_ids],
            parts[-1].cumulative_logprob,
            logprobs or None,
            parts[-1].finish_reason,
            parts[-1].stop_reason,
        )


class Client:
    """Input and output processor of one client."""

    def __init__(self, tokenizer: ClientTokenizer | None, **ready: Any) -> None:
        self.input = InputProcessor(make_ready(**ready), tokenizer)
        self.output = OutputProcessor(tokenizer)
        self.now = 1000.0

    def add(
        self, prompt: Any, request_id: str = "r", **params: Any
    ) -> tuple[ProcessedRequest, Sink]:
        params.setdefault("output_kind", RequestOutputKind.DELTA)
        params.setdefault("max_tokens", None)
        processed = self.input.process(
            prompt, SamplingParams(**params), request_id=request_id, now=5.0
        )
        sink = Sink()
        self.output.add_request(processed, sink, self.now)
        return processed, sink

    def step(self, *outputs: EngineCoreOutput, timestamp: float = 0.0) -> list[str]:
        self.now += 1.0
        return self.output.process_outputs(
            EngineCoreOutputs(list(outputs), timestamp=timestamp), self.now
        )


def tokens(
    internal_id: str,
    ids: Sequence[int],
    finish: FinishReason | None = None,
    stop_reason: int | str | None = None,
    **more: Any,
) -> EngineCoreOutput:
    """One output of the engine."""
    return EngineCoreOutput(
        internal_id, list(ids), finish_reason=finish, stop_reason=stop_reason, **more
    )


def logprobs_lists(rows: Sequence[tuple[Sequence[int], Sequence[float], int]]) -> LogprobsLists:
    """Rows of (token ids, logprobs, rank of the first)."""
    width = len(rows[0][0]) if rows else 1
    ids = [i for row in rows for i in row[0]]
    values = [v for row in rows for v in row[1]]
    ranks = [row[2] for row in rows]
    return LogprobsLists(
        WireArray("int32", [len(rows), width], struct.pack(f"{len(ids)}i", *ids)),
        WireArray("float32", [len(rows), width], struct.pack(f"{len(values)}f", *values)),
        WireArray("int32", [len(rows)], struct.pack(f"{len(ranks)}i", *ranks)),
    )
