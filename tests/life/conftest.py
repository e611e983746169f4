"""Real kernels with real engine processes, and the proof that nothing of ours is left after each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers.kernel import Kernel, start_kernel
from tests.helpers.leftovers import assert_nothing_left, shared_memory
from tests.helpers.shared_kernels import SharedKernels

StartKernel = Callable[[], Kernel]


@pytest.fixture
def runtime_folder(tmp_path_factory, monkeypatch) -> Iterator[Path]:
    """A runtime folder of the test's own, empty again at the end: no socket, descriptor or run folder is left."""
    folder = tmp_path_factory.mktemp("rt")
    shm_before = shared_memory()
    monkeypatch.setenv("KERNELSERVE_RUNTIME_DIR", str(folder))
    yield folder
    assert_nothing_left(folder, timeout=8, shared_before=shm_before)


@pytest.fixture
def ipykernel(request) -> str:
    """Which ipykernel the kernels of the test run; `on_both_ipykernels` asks for one after the other."""
    return str(getattr(request, "param", "ipykernel7"))


@pytest.fixture(scope="module")
def shared_kernels(tmp_path_factory) -> Iterator[SharedKernels]:
    """The kernels of `shared_kernel`."""
    kernels = SharedKernels(tmp_path_factory.mktemp("rt"))
    yield kernels
    kernels.close()


@pytest.fixture
def shared_kernel(shared_kernels, ipykernel) -> Iterator[Kernel]:
    """One kernel for all tests of a module that leave it usable, without engine and variables for each."""
    yield shared_kernels.get(ipykernel)
    shared_kernels.clean(ipykernel)


@pytest.fixture
def new_kernel(runtime_folder, ipykernel) -> Iterator[StartKernel]:
    """Starts kernels that share the test's runtime folder; all are gone at the end."""
    contexts = []

    def start() -> Kernel:
        context = start_kernel(ipykernel=ipykernel, KERNELSERVE_RUNTIME_DIR=str(runtime_folder))
        contexts.append(context)
        return context.__enter__()

    yield start
    for context in contexts:
        context.__exit__(None, None, None)


@pytest.fixture
def kernel(new_kernel) -> Kernel:
    """One kernel with kernelserve imported."""
    kernel: Kernel = new_kernel()
    kernel.ok("import kernelserve as ks, time, os")
    return kernel
