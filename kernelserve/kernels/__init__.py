"""Our own kernels in C++: built on the machine that they run on, kept in the cache, called through ctypes.

What packs weights knows no torch, so that it can be done while torch is being imported.
"""

from kernelserve.kernels.kernel_library import KernelLibrary
from kernelserve.kernels.packed_matrix import FOUR_BITS, PackedMatrix
from kernelserve.kernels.stored_matrix import Source, StoredMatrix

__all__ = ["FOUR_BITS", "KernelLibrary", "PackedMatrix", "Source", "StoredMatrix"]
