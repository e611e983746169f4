"""The order of the fields is the protocol: this file is its second copy, so that nobody changes it by accident."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelserve import protocol
from kernelserve.config import EngineConfig
from kernelserve.protocol import (
    EngineCoreEvent,
    EngineCoreEventType,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    EngineDead,
    EngineFailure,
    EngineMessage,
    EngineReady,
    EngineStatus,
    FinishReason,
    KVCacheMap,
    MultiModalFeatureSpec,
    PlaceholderRange,
    PrefillStats,
    QueuedRequest,
    Refusal,
    RequestType,
    SchedulerStats,
    StepRecord,
    UtilityOutput,
    UtilityReply,
)
from kernelserve.sampling_params import SamplingParams
from kernelserve.wire import WireArray, WireDecoder, WireEncoder

FIELDS = {
    "EngineCoreEvent": "type timestamp",
    "EngineCoreRequest": "request_id prompt_token_ids sampling_params arrival_time client_index priority cache_salt "
    "external_req_id mm_features",
    "PlaceholderRange": "offset length is_embed",
    "MultiModalFeatureSpec": "modality mm_hash position data shared",
    "SharedArrays": "fd secret offset generation arrays",
    "EncoderInput": "request_id mm_hash num_embeds",
    "LogprobsLists": "token_ids logprobs ranks",
    "PrefillStats": "num_prompt_tokens num_cached_tokens num_image_tokens num_encoded_images "
    "num_encoder_hits encode_time",
    "EngineCoreOutput": "request_id new_token_ids new_logprobs new_prompt_logprobs finish_reason stop_reason events "
    "prefill_stats",
    "UtilityRequest": "call_id method args",
    "UtilityOutput": "call_id result failure",
    "PrefixCacheStats": "requests queries hits preempted_requests preempted_queries preempted_hits",
    "SchedulerStats": "num_running_reqs num_waiting_reqs num_total_blocks num_used_blocks num_cached_blocks "
    "num_free_blocks kv_cache_usage num_preemptions num_steps prefix_cache_stats "
    "encoder_cache_size encoder_cache_used encoder_cache_cached encoder_cache_queries encoder_cache_hits",
    "Refusal": "request_id reason needed available",
    "StepRecord": "step timestamp token_budget num_scheduled_tokens num_prefill_tokens num_decode_tokens new_req_ids "
    "resumed_req_ids preempted_req_ids finished_req_ids refusals num_running_reqs num_waiting_reqs num_used_blocks "
    "num_cached_blocks num_free_blocks schedule_time execute_time sample_time update_time queued num_cached_tokens "
    "aborted_req_ids encoder_inputs encoder_hits encode_time",
    "QueuedRequest": "request_id timestamp num_prompt_tokens",
    "KVCacheMap": "num_blocks states req_ids block_tables",
    "EngineStatus": "phase seconds done tokenizer_dir",
    "EngineReady": "protocol_version engine_id version pid client_index config model_type max_model_len vocab_size "
    "block_size num_gpu_blocks kv_cache_bytes weight_bytes tokenizer_dir eos_token_ids generation_defaults "
    "load_seconds log_path mm_processor_dir image_token_id max_image_embeds max_images_per_prompt mm_cache_bytes "
    "image_side torch_reason",
    "EngineFailure": "code phase message traceback",
    "EngineDead": "message traceback code",
    "EngineCoreOutputs": "outputs scheduler_stats step_record timestamp missing_images",
    "UtilityReply": "output",
}
"""Append only, each new field with a default. Anything else raises PROTOCOL_VERSION."""
MAPS = {"LaunchSpec", "ClientHello"}


def test_trap_26_the_order_of_the_fields_is_pinned():
    assert protocol.PROTOCOL_VERSION == 1
    structs = {
        name
        for name in protocol.__all__
        if isinstance(thing := getattr(protocol, name), type) and issubclass(thing, msgspec.Struct)
    }
    assert structs == FIELDS.keys() | MAPS
    for name, fields in FIELDS.items():
        struct = getattr(protocol, name)
        assert struct.__struct_config__.array_like, name
        assert " ".join(struct.__struct_fields__) == fields, name


def test_the_numbers_of_the_enums_are_pinned():
    assert {kind.name: kind.value for kind in RequestType} == {
        "HELLO": b"\x00", "ADD": b"\x01", "ABORT": b"\x02", "UTILITY": b"\x03", "BYE": b"\x04",
    }  # fmt: skip
    assert [(r.name, r.value, str(r)) for r in FinishReason] == [
        ("STOP", 0, "stop"), ("LENGTH", 1, "length"), ("ABORT", 2, "abort"), ("ERROR", 3, "error"),
    ]  # fmt: skip
    assert [(e.name, e.value) for e in EngineCoreEventType] == [
        ("QUEUED", 1), ("SCHEDULED", 2), ("PREEMPTED", 3),
    ]  # fmt: skip


def test_a_message_of_an_older_minor_is_filled_in():
    shorter = msgspec.msgpack.encode(["r", [1, 2]])
    decoder: WireDecoder[EngineCoreOutput] = WireDecoder(EngineCoreOutput)
    assert decoder.decode([shorter]) == EngineCoreOutput("r", [1, 2])


def test_a_step_record_of_an_older_engine_has_no_queue():
    record = StepRecord(1, 2.0, 3, {"r": 1}, 1, 0, ["r"], [], [], [], [], 1, 1, 1, 1, 1)
    older = msgspec.msgpack.encode(msgspec.to_builtins(record)[:20])
    decoder: WireDecoder[StepRecord] = WireDecoder(StepRecord)
    assert decoder.decode([older]) == record
    assert (record.queued, record.num_cached_tokens, record.aborted_req_ids) == ([], {}, [])


def test_a_message_of_a_newer_minor_is_read_as_far_as_it_is_known():
    longer = msgspec.msgpack.encode(["dead", "why", "", "", "something new"])
    decoder: WireDecoder[EngineMessage] = WireDecoder(EngineMessage)
    assert decoder.decode([longer]) == EngineDead("why")


MESSAGES = [
    EngineStatus("load weights", 1.5, 0.25),
    EngineReady(
        protocol_version=1, engine_id="e", version="0", pid=1, client_index=2, config=EngineConfig(model="m"),
        model_type="llama", max_model_len=10, vocab_size=20, block_size=16, num_gpu_blocks=4, kv_cache_bytes=5,
        weight_bytes=6, tokenizer_dir="", eos_token_ids=[2], generation_defaults={"top_k": 3}, load_seconds={"x": 1.0},
    ),
    EngineFailure(code="import", phase="import", message="m", traceback="t"),
    EngineDead("gone", code="unloaded"),
    EngineCoreOutputs(
        [
            EngineCoreOutput(
                "r", [1], None, None, FinishReason.STOP, 7,
                [EngineCoreEvent(EngineCoreEventType.QUEUED, 1.0)], PrefillStats(3, 2),
            )
        ],
        SchedulerStats(1, 2),
        StepRecord(1, 2.0, 3, {"r": 1}, 1, 0, ["r"], [], [], ["r"], [Refusal("q", "blocks", 2, 1)], 1, 1, 1, 1, 1,
                   queued=[QueuedRequest("q", 1.5, 7)], num_cached_tokens={"r": 0}, aborted_req_ids=["p"]),
        4.0,
    ),
    UtilityReply(UtilityOutput(1, {"a": [1]}, None)),
]  # fmt: skip


def test_an_engine_without_a_compiler_says_so_in_its_line():
    ready = next(message for message in MESSAGES if isinstance(message, EngineReady))
    assert "torch" not in ready.describe()
    slow = msgspec.structs.replace(ready, torch_reason="no C++ compiler")
    assert slow.describe() == f"{ready.describe()}; the layers run in torch: no C++ compiler"


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_every_message_survives_the_way(message):
    decoder: WireDecoder[EngineMessage] = WireDecoder(EngineMessage)
    assert decoder.decode(WireEncoder().encode(message)) == message


def test_the_result_of_a_utility_survives_the_way():
    block_map = KVCacheMap(3, bytes([0, 1, 2]), ["r"], [[3]])
    decoder: WireDecoder[EngineMessage] = WireDecoder(EngineMessage)
    reply = decoder.decode(WireEncoder().encode(UtilityReply(UtilityOutput(1, block_map))))
    assert isinstance(reply, UtilityReply)
    assert msgspec.convert(reply.output.result, KVCacheMap) == block_map


@given(
    ids=st.lists(st.integers(0, 2**31 - 1), max_size=50),
    salt=st.none() | st.text(max_size=20),
    temperature=st.floats(0, 2),
    priority=st.integers(-100, 100),
)
def test_a_request_survives_the_way(ids, salt, temperature, priority):
    params = SamplingParams(temperature=temperature, stop=["x"], logit_bias={3: 1.0})
    request = EngineCoreRequest("r", ids, params, 1.0, 0, priority, salt, "ext")
    decoder: WireDecoder[EngineCoreRequest] = WireDecoder(EngineCoreRequest)
    assert decoder.decode(WireEncoder().encode(request)) == request


def test_the_images_of_a_request_travel_out_of_band():
    pixels = WireArray("float32", (1, 3, 8, 8), bytes(768))
    mask = WireArray("bool", (2, 1), b"\1\0")
    features = [
        MultiModalFeatureSpec(
            "image", "aa", PlaceholderRange(1, 4), {"pixels": pixels, "mask": mask}
        ),
        MultiModalFeatureSpec("image", "bb", PlaceholderRange(7, 3, b"\0\1\1"), None),
    ]
    request = EngineCoreRequest("r", [1] * 12, SamplingParams(), 1.0, mm_features=features)
    frames = WireEncoder().encode(request)
    assert [len(memoryview(frame)) for frame in frames[1:]] == [768]
    decoded: EngineCoreRequest = WireDecoder[EngineCoreRequest](EngineCoreRequest).decode(frames)
    assert decoded == request
    assert [feature.position.num_embeds for feature in decoded.mm_features] == [4, 2]
    assert mask.tolist() == [[True], [False]]
