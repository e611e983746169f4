"""Kernels for GPUs in Triton. Only `TritonAttention` imports them: a machine without Triton never does."""
