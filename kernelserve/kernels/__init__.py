"""Our own kernels in C++: built on the machine that they run on, kept in the cache, called through ctypes."""

from kernelserve.kernels.cpu_kernels import FOUR_BITS, CpuKernels
from kernelserve.kernels.packed_matrix import PackedMatrix
from kernelserve.kernels.stored_matrix import Source, StoredMatrix

__all__ = ["FOUR_BITS", "CpuKernels", "PackedMatrix", "Source", "StoredMatrix"]
