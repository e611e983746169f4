"""Checks the Triton kernels against float64 and measures them, and whole steps, beside measured ceilings.

python -m tests.gpu.check [--interpreter]

Exit status 1: some result is wrong. Speed fails nothing; what is to be reached is printed beside it.
"""

from __future__ import annotations

import os
import sys
import time

from tests.helpers.triton_here import triton_path

__all__ = ["main"]


def main() -> int:
    """Run everything and return the exit status."""
    is_interpreted = sys.argv[1:] == ["--interpreter"]
    if is_interpreted:
        os.environ["TRITON_INTERPRET"] = "1"
        sys.path.append(triton_path() or ".")
    import torch

    from tests.gpu.attention_speed import measure_attention
    from tests.gpu.kernel_errors import check_kernels
    from tests.gpu.machine import Machine
    from tests.gpu.model_speed import measure_models

    if not is_interpreted and not torch.cuda.is_available():
        sys.stderr.write("torch sees no NVIDIA GPU here; --interpreter tries the script itself\n")
        return 2
    start = time.monotonic()
    machine = Machine("cpu" if is_interpreted else "cuda")
    machine.say(f"torch {torch.__version__} on {machine.name}")
    with torch.inference_mode():
        is_right = check_kernels(machine)
        machine.measure_ceilings()
        measure_attention(machine)
        measure_models(machine)
    machine.say(
        f"{time.monotonic() - start:.0f} s; the kernels are {'right' if is_right else 'WRONG'}"
    )
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
