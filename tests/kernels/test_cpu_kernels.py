"""The C++ kernels against float64."""

from __future__ import annotations

import os
import time

import gguf
import numpy as np
import pytest
import torch

from kernelserve.errors import KernelBuildError
from kernelserve.kernels import Source, StoredMatrix
from kernelserve.kernels.build import build_library
from kernelserve.kernels.cpu_kernels import CpuKernels

N, K = 100, 576  # seven panels, the last not full
QUANTS = {
    Source.Q8_0: gguf.GGMLQuantizationType.Q8_0,
    Source.Q4_0: gguf.GGMLQuantizationType.Q4_0,
    Source.Q4_1: gguf.GGMLQuantizationType.Q4_1,
}
DTYPES = {
    Source.FLOAT32: torch.float32,
    Source.BFLOAT16: torch.bfloat16,
    Source.FLOAT16: torch.float16,
}


@pytest.fixture(scope="module")
def kernels() -> CpuKernels:
    return CpuKernels(build_library())


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def stored(source: Source, n: int = N, k: int = K) -> tuple[StoredMatrix, torch.Tensor]:
    """A matrix as a checkpoint holds it, and its values."""
    weight = random(n, k)
    if source in DTYPES:
        rounded = weight.to(DTYPES[source])
        data = rounded.view(-1).view(torch.uint8).numpy()
        return StoredMatrix(source, data, n, k), rounded.float()
    blocks = gguf.quants.quantize(weight.numpy(), QUANTS[source])
    values = gguf.quants.dequantize(blocks, QUANTS[source])
    return StoredMatrix(source, blocks.reshape(-1), n, k), torch.from_numpy(values)


@pytest.mark.parametrize("source", Source)
def test_rows_are_what_the_file_says(kernels, source) -> None:
    matrix, values = stored(source)
    indices = torch.tensor([0, 15, 16, 99, 42])
    assert torch.equal(kernels.read_rows(kernels.pack(matrix), indices), values[indices])


@pytest.mark.parametrize("source", Source)
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 61, 130])
def test_linear(kernels, source, rows) -> None:
    matrix, values = stored(source)
    x, bias = random(rows, K, seed=1), random(N, seed=2)
    got = kernels.linear(x, kernels.pack(matrix, bias))
    exact = x.double() @ values.double().T + bias
    torch.testing.assert_close(got.double(), exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("source", Source)
def test_a_row_is_the_same_in_any_company(kernels, source) -> None:
    packed = kernels.pack(stored(source)[0])
    x = random(130, K, seed=1)
    together = kernels.linear(x, packed)
    for count in range(1, 15):
        assert torch.equal(kernels.linear(x[:count].contiguous(), packed), together[:count])


@pytest.mark.parametrize("k", [16, 33, 250, 600])
def test_plain_numbers_in_any_length(kernels, k) -> None:
    matrix, values = stored(Source.FLOAT32, 20, k)
    x = random(9, k, seed=1)
    got = kernels.linear(x, kernels.pack(matrix))
    torch.testing.assert_close(got, x @ values.T, rtol=1e-4, atol=1e-4)


def test_scales_of_zero_and_subnormal_scales(kernels) -> None:
    scales = np.array([0.0, 6e-8, 3e-6, 5e-5, 1e-4, 1.0, -2.5, 8000.0], np.float16)
    blocks = np.zeros((8, 18), np.uint8)
    blocks[:, :2] = scales.view(np.uint8).reshape(8, 2)
    blocks[:, 2:] = np.arange(16) * 17
    values = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType.Q4_0)
    matrix = StoredMatrix(Source.Q4_0, blocks.reshape(-1), 8, 32)
    got = kernels.read_rows(kernels.pack(matrix), torch.arange(8))
    assert torch.equal(got, torch.from_numpy(values))


def test_rows_in_another_order_and_below_each_other(kernels) -> None:
    matrix, values = stored(Source.Q8_0)
    order = torch.randperm(N, generator=torch.Generator().manual_seed(0))
    ordered = StoredMatrix(Source.Q8_0, matrix.data, N, K, order.numpy())
    both = StoredMatrix.joined([matrix, ordered])
    got = kernels.read_rows(kernels.pack(both), torch.arange(2 * N))
    assert torch.equal(got, torch.cat([values, values[order]]))


@pytest.mark.parametrize(
    ("dtype", "source"),
    [
        (torch.float32, Source.FLOAT32),
        (torch.bfloat16, Source.BFLOAT16),
        (torch.float16, Source.FLOAT16),
    ],
)
def test_numbers_that_fit_into_two_bytes_are_kept_in_two(dtype, source) -> None:
    weight = random(8, 8).to(dtype).float()
    assert StoredMatrix.of(weight).source == source


def test_a_compiler_that_fails_is_named(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("KERNELSERVE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(KernelBuildError, match="false ended with 1"):
        build_library()
    assert not list(tmp_path.rglob("*.so"))


def test_a_library_is_compiled_once_and_old_ones_go(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("KERNELSERVE_CACHE_DIR", str(tmp_path))
    (tmp_path / "kernels").mkdir()
    old, recent = (tmp_path / "kernels" / f"cpu-{name}.so" for name in ("old", "recent"))
    for path, age in ((old, 40), (recent, 2)):
        path.touch()
        os.utime(path, (time.time() - age * 86_400,) * 2)
    library = build_library()
    inode = library.stat().st_ino
    assert build_library() == library
    assert library.stat().st_ino == inode
    assert set(library.parent.iterdir()) == {library, recent}


def test_a_library_that_is_none_is_an_error(tmp_path) -> None:
    path = tmp_path / "cpu.so"
    path.write_bytes(b"no library")
    with pytest.raises(KernelBuildError, match="cannot be loaded"):
        CpuKernels(path)
