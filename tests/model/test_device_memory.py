"""What counts as free: what the process may still allocate."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
import torch

from kernelserve.model.device_memory import available_bytes

CPU = torch.device("cpu")
MIB = 2**20


@pytest.mark.parametrize(("left", "wanted"), [(100 * MIB, 100 * MIB), (-5 * MIB, 0)])
def test_a_limit_of_the_address_space_counts(monkeypatch, left, wanted):
    """`ulimit -v`: without it a start would fail in the middle, with a message that speaks of free gigabytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + left
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, resource.RLIM_INFINITY))
    assert available_bytes(CPU) == pytest.approx(wanted, abs=8 * MIB)


def test_without_a_limit_it_is_the_memory_of_the_machine(monkeypatch):
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda _: unlimited)
    assert available_bytes(CPU) > 100 * MIB
