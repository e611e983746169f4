"""How fast whole steps of the ModelRunner are, for models shaped like Llama with random weights."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

from kernelserve.config import EngineConfig
from kernelserve.core.scheduler_output import CachedRequestData, NewRequestData, SchedulerOutput
from kernelserve.model.loaded_model import LoadedModel
from kernelserve.model.paged_attention import ATTENTION_NAME, register_attention
from kernelserve.sampling_params import SamplingParams
from kernelserve.worker.model_runner import ModelRunner
from tests.gpu.machine import Machine

__all__ = ["measure_models"]

BLOCK_SIZE = 16
_STEPS, _WARM_UPS = 20, 3

_LLAMA_3: dict[str, Any] = {
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128_256,
} | {
    "max_position_embeddings": 32_768,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0},
}
SHAPES: dict[str, dict[str, Any]] = {
    "1B": _LLAMA_3
    | {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16}
    | {"head_dim": 64, "tie_word_embeddings": True},
    "8B": _LLAMA_3
    | {"hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32}
    | {"head_dim": 128, "tie_word_embeddings": False},
}
_TINY = {
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "hidden_size": 32,
} | {
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "head_dim": 16,
    "max_position_embeddings": 128,
}


def measure_models(machine: Machine) -> None:
    """Print a line for each model and batch."""
    for name, shape in (SHAPES if machine.is_gpu else {"tiny": _TINY}).items():
        model = _random_model(machine, shape)
        decodes = [(1, 512), (1, 16_384), (32, 1024), (128, 1024), (256, 2048)]
        for requests, context in decodes if machine.is_gpu else [(2, 20)]:
            _measure_decode(machine, name, model, requests, context)
        prefills = [(1, 512), (1, 2048), (8, 2048), (1, 16_384)]
        for requests, length in prefills if machine.is_gpu else [(1, 20)]:
            _measure_prefill(machine, name, model, requests, length)
        del model
        machine.tidy()


def _random_model(machine: Machine, shape: dict[str, Any]) -> LoadedModel:
    from transformers import AutoConfig, AutoModelForCausalLM

    from kernelserve.attention.triton_backend import TritonAttention
    from kernelserve.model.fused.gpu_fusion import fuse_for_gpu

    register_attention()
    config = AutoConfig.for_model("llama", **shape)
    with torch.inference_mode(mode=False), machine.device:
        module = AutoModelForCausalLM.from_config(
            config, dtype=machine.dtype, attn_implementation=ATTENTION_NAME
        )
    model = LoadedModel(
        module=module.eval().requires_grad_(False),
        hf_config=config,
        dtype=machine.dtype,
        device=machine.device,
        model_type="llama",
        vocab_size=config.vocab_size,
        max_model_len=config.max_position_embeddings,
        max_model_len_reason="the config says so",
        tokenizer_dir="",
        eos_token_ids=[],
        generation_defaults={},
    )
    fuse_for_gpu(model, TritonAttention(), block_size=BLOCK_SIZE)
    layers = "Triton" if model.fused else f"torch: {model.torch_reason}"
    machine.say(f"the layers run in {layers}")
    return model


class _Steps:
    """A runner and requests that it steps through, without an engine; blocks in any order."""

    def __init__(self, model: LoadedModel, requests: int, length: int) -> None:
        from kernelserve.attention.triton_backend import TritonAttention

        per_request = -(-length // BLOCK_SIZE)
        for part in model.allocate(
            TritonAttention(), num_blocks=1 + requests * per_request, block_size=BLOCK_SIZE
        ):
            part.key.normal_()
            part.value.normal_()
        order = torch.randperm(requests * per_request) + 1
        self._blocks = order.view(requests, per_request).tolist()
        config = EngineConfig(max_num_batched_tokens=requests * length, max_num_seqs=requests)
        self._runner = ModelRunner(model, config, max_model_len=length)
        self._model, self._round = model, 0

    def begin(self, context: int, computed: int) -> float:
        """Forget all requests and add new ones, of which so many tokens are in the cache; return the seconds."""
        finished = self._ids()
        self._round += 1
        params = SamplingParams(temperature=0, max_tokens=_STEPS)
        new = [
            NewRequestData(name, list(range(context)), context, params, blocks, computed)
            for name, blocks in zip(self._ids(), self._blocks, strict=True)
        ]
        for request in new:
            request.token_ids = [token % self._model.vocab_size for token in request.token_ids]
        rows = context - computed
        counts = dict.fromkeys(self._ids(), rows)
        total = rows * len(new)
        return self._run(
            SchedulerOutput(new, CachedRequestData(), counts, total, set(finished), set())
        )

    def decode(self, computed: int) -> float:
        """One token more for all; return the seconds."""
        names = self._ids()
        known = CachedRequestData(names, [[] for _ in names], [computed] * len(names))
        return self._run(
            SchedulerOutput([], known, dict.fromkeys(names, 1), len(names), set(), set())
        )

    def _ids(self) -> list[str]:
        return [f"{self._round}-{i}" for i in range(len(self._blocks))]

    def _run(self, plan: SchedulerOutput) -> float:
        start = time.perf_counter()
        self._runner.execute_model(plan)
        self._runner.sample_tokens()  # waits for the device
        return time.perf_counter() - start


def _measure_decode(
    machine: Machine, name: str, model: LoadedModel, requests: int, context: int
) -> None:
    machine.tidy()
    count = _STEPS + _WARM_UPS if machine.is_gpu else 2
    cache_bytes = model.kv_cache_spec.bytes_per_block(1) * context * requests
    if machine.is_gpu and cache_bytes > 0.8 * torch.cuda.mem_get_info()[0]:
        machine.say(f"{name}, {requests} at {context}: no memory for it")
        return
    steps = _Steps(model, requests, context + count)
    steps.begin(context, context - 1)
    times = [steps.decode(context + i) for i in range(count)]
    seconds = statistics.median(times[_WARM_UPS:] or times)
    embedding = model.module.get_input_embeddings().weight
    is_tied = embedding is model.module.get_output_embeddings().weight
    read = model.weight_bytes - (0 if is_tied else embedding.nbytes) + cache_bytes
    machine.say(
        f"{name}, {requests:3} decoding at {context:6} tokens: {seconds * 1000:6.2f} ms, "
        f"{requests / seconds:6.0f} tok/s, {machine.share_of_copy(read, seconds)} (goal 90%)"
    )
    model.detach()


def _measure_prefill(
    machine: Machine, name: str, model: LoadedModel, requests: int, length: int
) -> None:
    machine.tidy()
    steps = _Steps(model, requests, length)
    times = [steps.begin(length, 0) for _ in range(2 + _WARM_UPS if machine.is_gpu else 1)]
    seconds = statistics.median(times[_WARM_UPS:] or times)
    in_layers = sum(p.numel() for p in model.module.get_decoder().layers.parameters())
    heads = sum(layer.num_heads * layer.key_dim for layer in model.kv_cache_spec.layers)
    flops = requests * (2 * in_layers * length + 2 * heads * length**2)
    machine.say(
        f"{name}, {requests:3} prompts of {length:6} tokens:     {seconds * 1000:6.2f} ms, "
        f"{requests * length / seconds:6.0f} tok/s, {machine.share_of_product(flops, seconds)} (goal 65%)"
    )
    model.detach()
