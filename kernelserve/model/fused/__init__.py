"""The layers of a decoder in our own kernels, where a model is built in a way that these know."""

from kernelserve.model.fused.fused_decoder import FusedDecoder
from kernelserve.model.fused.fusion import Fusion

__all__ = ["FusedDecoder", "Fusion"]
