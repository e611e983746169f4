"""Compiles the Triton kernels for a GPU that need not be there, and prints what they use as JSON.

python -m tests.helpers.compiled_kernels [CAPABILITY] [HEAD_DIM] [DTYPE]

The arguments are those of real launches by the backend, which are taken down and not run.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from tests.helpers.triton_here import triton_path

__all__ = ["main"]

_TYPES = {torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.float32: "*fp32"} | {
    torch.int32: "*i32",
    torch.int64: "*i64",
}


class LaunchRecorder:
    """Stands in for a kernel: kernel[grid](...) is noted down."""

    def __init__(
        self, kernel: Any, launches: list[tuple[Any, tuple[Any, ...], dict[str, Any]]]
    ) -> None:
        self._kernel = kernel
        self._launches = launches

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda *args, **options: self._launches.append((self._kernel, args, options))


def record_launches(head_dim: int, dtype: torch.dtype) -> list[tuple[Any, Any, Any]]:
    """One step with a prompt and a long decoding text, on a layer that has everything a layer may have."""
    from kernelserve.attention import triton_backend
    from kernelserve.attention.metadata import AttentionMetadata

    launches: list[tuple[Any, Any, Any]] = []
    stand_ins: dict[str, Any] = {
        name: LaunchRecorder(getattr(triton_backend, name), launches)
        for name in ("attend", "merge", "write_kv", "rotate_and_write")
    }
    backend = triton_backend.TritonAttention()
    kv_cache = backend.allocate(
        300, block_size=16, num_kv_heads=8, key_dim=head_dim, value_dim=head_dim, dtype=dtype,
        device=torch.device("cpu"),
    )  # fmt: skip
    metadata = AttentionMetadata.build(
        [100, 1], [100, 2000], torch.zeros(2, 128, dtype=torch.int32), torch.arange(101),
        block_size=16, spans=[[(5, 30)], []],
    )  # fmt: skip
    query = torch.empty(101, 32, head_dim, dtype=dtype)
    with mock.patch.multiple(triton_backend, **stand_ins):
        backend.write_kv(query[:, :8], query[:, :8], kv_cache, metadata.slot_mapping)
        qkv, norms = torch.empty(101, 48 * head_dim, dtype=dtype), (query[0, 0], query[0, 0])
        angles = (torch.empty(200, head_dim // 2),) * 2
        positions = metadata.slot_mapping
        backend.rotate_and_write(
            qkv, kv_cache, metadata.slot_mapping, positions, angles, norms, 1e-5
        )
        backend.forward(
            query, kv_cache, metadata, scale=0.1, sliding_window=1000, logits_soft_cap=5.0, sinks=query[0, :, 0]
        )  # fmt: skip
    return launches + pointwise_launches(query.flatten(1))


def pointwise_launches(rows: torch.Tensor) -> list[tuple[Any, Any, Any]]:
    """As GpuDecoder makes them for rows [T, hidden]."""
    from kernelserve.kernels.gpu.gate import gate
    from kernelserve.kernels.gpu.norm import add_norm

    hidden = rows.shape[1]
    sizes = {"HAS_STREAM": True, "HIDDEN": hidden, "PAD": hidden}
    return [
        (add_norm, (rows, rows, rows[0], rows, 1e-5), sizes),
        (gate, (rows, rows), {"ACTIVATION": 1, "WIDTH": hidden // 2, "COLUMNS": 1024}),
    ]


def compile_launch(
    kernel: Any, args: tuple[Any, ...], options: dict[str, Any], capability: int
) -> Any:
    """Return the compiled kernel as Triton would make it for this launch."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    given = dict(zip(kernel.arg_names, args, strict=False))
    constants = {name: value for name, value in options.items() if name in kernel.arg_names}
    signature = dict.fromkeys(kernel.arg_names, "constexpr") | {
        name: _TYPES[value.dtype] if isinstance(value, torch.Tensor) else {int: "i32", float: "fp32"}[type(value)]
        for name, value in given.items()
    }  # fmt: skip
    aligned = [
        i
        for i, name in enumerate(kernel.arg_names)
        if isinstance(given.get(name), torch.Tensor)
        or (type(given.get(name)) is int and given[name] % 16 == 0 and name not in kernel.do_not_specialize)
    ]  # fmt: skip
    source = ASTSource(
        kernel, signature, constants, {(i,): [["tt.divisibility", 16]] for i in aligned}
    )
    sizes = {name: value for name, value in options.items() if name not in kernel.arg_names}
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=sizes)


def resources(compiled: Any) -> dict[str, int]:
    """Registers and stack (what did not fit into them) of a thread, bytes of shared memory, matrix instructions."""
    import triton

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
        said = subprocess.run(
            [tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    numbers = dict(re.findall(r"(REG|STACK):(\d+)", said))
    return {
        "registers": int(numbers["REG"]),
        "stack": int(numbers["STACK"]),
        "shared": compiled.metadata.shared,
        "matrix": len(re.findall(r"\b(?:wgmma\.mma_async|mma)\.sync", compiled.asm["ptx"])),
    }


def main() -> None:
    """Compile all launches of one step."""
    capability, head_dim, dtype = (*sys.argv[1:], *("90", "128", "bfloat16")[len(sys.argv) - 1 :])
    sys.path.append(triton_path() or ".")
    found = []
    for kernel, args, options in record_launches(int(head_dim), getattr(torch, dtype)):
        compiled = compile_launch(kernel, args, options, int(capability))
        found.append(
            {"kernel": kernel.__name__, "rows": options.get("BLOCK_M", 0)} | resources(compiled)
        )
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
