"""What is left out of torch comes back when it is wanted. Seen in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import sys
from kernelserve.torch_import import import_torch, load_meta_operators

import_torch()
import torch

def shape():
    images, filters = (torch.empty(*size, device="meta") for size in [(1, 3, 8, 8), (2, 3, 3, 3)])
    return list(torch.nn.functional.conv2d(images, filters).shape)

assert "torch._meta_registrations" not in sys.modules
assert torch.ones(2, 3).matmul(torch.ones(3, 1)).tolist() == [[3], [3]]
try:
    shape()
except NotImplementedError:
    print("left out")
{wanted}
print(shape())
"""


@pytest.mark.parametrize("wanted", ["load_meta_operators()", "torch._meta_registrations.meta_conv"])
def test_operators_of_the_meta_device_come_when_they_are_wanted(wanted) -> None:
    run = subprocess.run(
        [sys.executable, "-c", CODE.replace("{wanted}", wanted)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.stdout.splitlines() == ["left out", "[1, 2, 6, 6]"], run.stderr
