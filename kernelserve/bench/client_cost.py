"""What a token costs in the client: the processing alone, and the whole way from the engine's sockets to a reader."""

from __future__ import annotations

import statistics
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from kernelserve.bench.token_streams import measure_streams
from kernelserve.client.async_llm import AsyncLLM
from kernelserve.client.engine_options import EngineOptions
from kernelserve.client.input_processor import InputProcessor
from kernelserve.client.mailbox import Mailbox
from kernelserve.client.output_processor import OutputProcessor
from kernelserve.client.tokenizer import ClientTokenizer
from kernelserve.protocol import EngineCoreOutput, EngineCoreOutputs, EngineReady, SchedulerStats
from kernelserve.sampling_params import RequestOutputKind, SamplingParams
from kernelserve.wire import WireDecoder, WireEncoder

__all__ = ["measure_client"]

_STREAMS = (1, 64)
_STEPS = 256
_REPETITIONS = 5
_SLOT = "bench-client"
_PROMPT = "Once upon a time there was a small village by the sea, and in it"
_ANSWER = "The quick brown fox jumps over the lazy dog, and the dog does not mind at all. "


async def measure_client(model: str, options: EngineOptions) -> AsyncIterator[dict[str, Any]]:
    """Yield microseconds for a token. Starts the engine of `model` once, for its tokenizer."""
    async with AsyncLLM(model, **options) as engine:
        ready, tokenizer = await engine.start(), await engine.get_tokenizer()
    if tokenizer is None:
        raise SystemExit("client: this engine has no tokenizer")
    for streams in _STREAMS:
        yield _measure_processing(ready, tokenizer, streams)
    fake = f"fake:tokenizer={ready.tokenizer_dir}"
    async with AsyncLLM(fake, fake_model=True, name=_SLOT) as engine:
        for streams in _STREAMS:
            await measure_streams(engine, _params(), streams, repetitions=1)  # warms up
            yield {"bench": "client", "what": "whole way"} | await measure_streams(
                engine, _params(), streams, repetitions=_REPETITIONS
            )


def _measure_processing(
    ready: EngineReady, tokenizer: ClientTokenizer, streams: int
) -> dict[str, Any]:
    """Decode the message, detokenize, look for stop strings, merge: no sockets, no threads."""
    answer = tokenizer.encode(_ANSWER, add_special_tokens=False)
    processor = OutputProcessor(tokenizer)
    inputs = InputProcessor(ready, tokenizer)
    request_ids = [_add_stream(processor, inputs, index) for index in range(streams)]
    microseconds = [1e6 * s / streams for s in _run_steps(processor, request_ids, answer)]
    return {
        "bench": "client",
        "what": "processing",
        "streams": streams,
        "steps": _STEPS,
        "token_us": round(statistics.median(microseconds), 1),
        "token_p99_us": round(sorted(microseconds)[int(_STEPS * 0.99)], 1),
    }


def _params() -> SamplingParams:
    return SamplingParams(
        temperature=0,
        max_tokens=_STEPS + 1,
        ignore_eos=True,
        stop=["no such text"],
        output_kind=RequestOutputKind.DELTA,
    )


def _add_stream(processor: OutputProcessor, inputs: InputProcessor, index: int) -> str:
    processed = inputs.process(_PROMPT, _params(), request_id=f"s{index}", now=time.time())
    processor.add_request(processed, Mailbox(delta=True), time.monotonic())
    [request] = processed.requests
    return request.request_id


def _run_steps(
    processor: OutputProcessor, request_ids: list[str], answer: list[int]
) -> Iterator[float]:
    """Yield the seconds of each step that brings every stream one token."""
    encoder = WireEncoder()
    decoder: WireDecoder[EngineCoreOutputs] = WireDecoder(EngineCoreOutputs)
    for step in range(_STEPS):
        tokens = [answer[step % len(answer)]]
        message = EngineCoreOutputs(
            outputs=[EngineCoreOutput(request_id, tokens) for request_id in request_ids],
            scheduler_stats=SchedulerStats(num_running_reqs=len(request_ids)),
        )
        frames = [bytes(frame) for frame in encoder.encode(message)]
        started = time.perf_counter()
        processor.process_outputs(decoder.decode(frames), time.monotonic())
        yield time.perf_counter() - started
