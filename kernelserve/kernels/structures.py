"""The structures of cpu/*.h, field by field."""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int32, c_int64, c_void_p

__all__ = [
    "AttentionStruct",
    "DecoderStruct",
    "LayerStruct",
    "MatrixStruct",
    "RequestsStruct",
    "StepStruct",
]


class MatrixStruct(ctypes.Structure):
    """`Matrix` of weights.h."""

    _fields_ = (
        ("data", c_void_p),
        ("n", c_int64),
        ("k", c_int64),
        ("format", c_int32),
        ("reserved", c_int32),
        ("bias", c_void_p),
    )


class AttentionStruct(ctypes.Structure):
    """`AttentionShape` of attention.h."""

    _fields_ = (
        ("heads", c_int32),
        ("kv_heads", c_int32),
        ("head_dim", c_int32),
        ("block_size", c_int32),
        ("scale", c_float),
        ("soft_cap", c_float),
        ("window", c_int32),
        ("reserved", c_int32),
    )


class RequestsStruct(ctypes.Structure):
    """`Requests` of attention.h."""

    _fields_ = (
        ("starts", c_void_p),
        ("seq_lens", c_void_p),
        ("block_table", c_void_p),
        ("ld_block_table", c_int64),
        ("count", c_int32),
        ("reserved", c_int32),
    )


class LayerStruct(ctypes.Structure):
    """`Layer` of layers.h."""

    _fields_ = (
        ("qkv", MatrixStruct),
        ("attention_out", MatrixStruct),
        ("gate_up", MatrixStruct),
        ("mlp_out", MatrixStruct),
        ("attention_norm", c_void_p),
        ("mlp_norm", c_void_p),
        ("query_norm", c_void_p),
        ("key_norm", c_void_p),
        ("keys", c_void_p),
        ("values", c_void_p),
        ("attention", AttentionStruct),
    )


class DecoderStruct(ctypes.Structure):
    """`Decoder` of layers.h."""

    _fields_ = (
        ("layers", c_void_p),
        ("num_layers", c_int32),
        ("hidden", c_int32),
        ("intermediate", c_int32),
        ("rotary_dim", c_int32),
        ("eps", c_float),
        ("activation", c_int32),
        ("rounds_inputs", c_int32),
        ("reserved", c_int32),
    )


class StepStruct(ctypes.Structure):
    """`Step` of layers.h."""

    _fields_ = (
        ("requests", RequestsStruct),
        ("rows", c_int64),
        ("cosines", c_void_p),
        ("sines", c_void_p),
        ("positions", c_void_p),
        ("slot_mapping", c_void_p),
        ("hidden_states", c_void_p),
        ("scratch", c_void_p),
    )
