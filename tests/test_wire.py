"""Frames: arrays out of band, limits before decoding, garbage refused."""

from __future__ import annotations

import pickle
from array import array

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelserve.errors import ProtocolError
from kernelserve.protocol import EngineCoreOutput, EngineMessage, LogprobsLists
from kernelserve.wire import INLINE_BYTES, WireArray, WireDecoder, WireEncoder


def make_lists(rows: int, width: int) -> LogprobsLists:
    ids = array("i", range(rows * width))
    values = array("f", [0.5] * (rows * width))
    return LogprobsLists(
        WireArray("int32", (rows, width), ids.tobytes()),
        WireArray("float32", (rows, width), values.tobytes()),
        WireArray("int32", (rows,), array("i", range(rows)).tobytes()),
    )


@given(rows=st.integers(0, 60), width=st.integers(1, 25))
def test_arrays_survive_the_way(rows, width):
    lists = make_lists(rows, width)
    frames = WireEncoder().encode(EngineCoreOutput("a", [1], lists))
    decoder: WireDecoder[EngineCoreOutput] = WireDecoder(EngineCoreOutput)
    decoded = decoder.decode([bytes(frame) for frame in frames])
    assert decoded.new_logprobs == lists
    want = [list(range(r * width, (r + 1) * width)) for r in range(rows)]
    assert decoded.new_logprobs.token_ids.tolist() == want


def test_small_arrays_are_inline_and_large_ones_out_of_band():
    assert len(WireEncoder().encode(make_lists(1, 5))) == 1
    rows = INLINE_BYTES // 4
    frames = WireEncoder().encode(make_lists(rows, 2))
    assert len(frames) == 4
    assert sum(len(bytes(f)) for f in frames[1:]) == rows * 4 * 5


def test_trap_25_the_sent_array_is_not_copied_and_the_received_one_aliases_its_frame():
    data = array("i", range(1000))
    sent = WireArray("int32", (1000,), memoryview(data).cast("B"))
    frames = WireEncoder().encode([sent])
    data[0] = 77
    assert memoryview(frames[1]).cast("B").cast("i")[0] == 77
    decoder: WireDecoder[list[WireArray]] = WireDecoder(list[WireArray])
    frame = bytes(frames[1])
    (received,) = decoder.decode([frames[0], frame])
    assert received.data.obj is frame
    assert received.data.readonly


def test_the_size_limit_comes_before_decoding():
    decoder: WireDecoder[list[str]] = WireDecoder(list[str], max_message_bytes=100)
    with pytest.raises(ProtocolError, match="101 bytes"):
        decoder.decode([b"\xc1" * 51, b"x" * 50])


@pytest.mark.parametrize(
    "value",
    [
        ["float16", [1], b"\0\0"],
        ["int32", [2], b"\0" * 4],
        ["int32", [-1], b""],
        ["int32", [1], 1],
        ["int32", [1], 0],
        ["int32", [1], -1],
        ["int32", "x", b""],
        [3, [1], b""],
        ["int32", [1]],
        "int32",
        None,
    ],
)
def test_a_bad_array_is_a_protocol_error(value):
    decoder: WireDecoder[list[WireArray]] = WireDecoder(list[WireArray])
    with pytest.raises(ProtocolError):
        decoder.decode([msgspec.msgpack.encode([value])])


def test_only_known_values_are_sent():
    with pytest.raises(ProtocolError, match="object cannot be sent"):
        WireEncoder().encode([object()])


@given(st.lists(st.binary(max_size=200), max_size=4))
def test_d7_fuzz_garbage_is_a_protocol_error_or_a_message(frames):
    decoder: WireDecoder[EngineMessage] = WireDecoder(EngineMessage)
    try:
        decoder.decode(frames)
    except ProtocolError:
        return


def test_d7_a_pickle_bomb_is_garbage():
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("unpickled",))

    decoder: WireDecoder[EngineMessage] = WireDecoder(EngineMessage)
    with pytest.raises(ProtocolError):
        decoder.decode([pickle.dumps(Bomb())])


def test_d7_deep_nesting_does_not_overflow_the_stack():
    decoder: WireDecoder[EngineMessage] = WireDecoder(EngineMessage)
    with pytest.raises(ProtocolError):
        decoder.decode([b"\x91" * 1_000_000])
