"""A2: a start that lacks memory names the engines that may hold it, and how to end them."""

from __future__ import annotations

import os
import re
import shutil

import pytest

import kernelserve as ks
from kernelserve.client.registry import EngineDescriptor, list_engines
from kernelserve.config import DEFAULT_MODEL
from kernelserve.errors import EngineStartError, KVCacheMemoryError, WeightsMemoryError
from kernelserve.process_identity import is_process_alive
from tests.helpers.leftovers import engine_pids

pytestmark = pytest.mark.process

NAMED = re.compile(
    r"Another engine runs: 'default' with 'fake', pid (?P<pid>\d+), started by (?P<owner>[^,]+)"
    r"(, which (?P<state>[a-z ]+))?, holds (?P<memory>[\d,]+) MiB of main memory\. "
    r"This ends it: (?P<command>ks\.LLM\.attach\('[0-9a-f]+'\)\.stop\(\))"
)


def named_in(error: EngineStartError) -> list[re.Match[str]]:
    lines = error.hint.splitlines()
    assert all(line in str(error).splitlines()[1:] for line in lines)
    found = [NAMED.fullmatch(line) for line in lines]
    assert None not in found, error.hint
    return [match for match in found if match is not None]


def refused(model: str, **options) -> EngineStartError:
    with pytest.raises(EngineStartError) as caught:
        ks.LLM(model, name="mine", show_progress=False, **options)
    return caught.value


def test_a2_a_leftover_is_named_and_the_command_ends_it(parent, runtime_folder):
    owner = parent("idle", "fake", "detached")
    engine = int(owner.stdout.readline())
    owner.kill()
    owner.wait()

    # The real refusal of a real model, before anything is allocated.
    error = refused(DEFAULT_MODEL, kv_cache_memory_bytes=2**60)
    assert isinstance(error, KVCacheMemoryError)
    assert f"kv_cache_memory_bytes={2**60}" in str(error).partition("\n")[0]
    [named] = named_in(error)
    assert int(named["pid"]) == engine
    assert (named["owner"], named["state"]) == (f"process {owner.pid}", "has ended")
    assert 10 < int(named["memory"].replace(",", "")) < 1000

    exec(named["command"], {"ks": ks})
    assert not is_process_alive(engine)
    assert engine_pids(runtime_folder) == []
    assert refused("fake:fail=memory", fake_model=True).hint == ""


def test_a2_the_owner_of_a_leftover_may_live(parent):
    owner = parent("idle", "fake")
    owner.stdout.readline()
    with ks.LLM("fake", fake_model=True, show_progress=False):
        error = refused("fake:fail=memory", fake_model=True)
        assert isinstance(error, WeightsMemoryError)
        theirs, mine = named_in(error)
        assert (theirs["owner"], theirs["state"]) == (f"process {owner.pid}", "still runs")
        assert (mine["owner"], mine["state"]) == ("this process", None)
        assert {int(named["pid"]) for named in (theirs, mine)} == {d.pid for d in list_engines()}
        assert {d.owner_pid for d in list_engines()} == {owner.pid, os.getpid()}


def test_other_failures_blame_nobody(parent):
    parent("idle", "fake").stdout.readline()
    error = refused("fake:fail=error", fake_model=True)
    assert error.hint == ""
    assert "Another engine" not in str(error)


def test_an_engine_that_ends_while_the_list_is_made_disturbs_nobody(
    parent, runtime_folder, monkeypatch
):
    parent("idle", "fake").stdout.readline()
    [engine] = list_engines()

    def vanish(descriptor: EngineDescriptor) -> bool:
        shutil.rmtree(descriptor.run_dir)
        return True

    monkeypatch.setattr(EngineDescriptor, "is_alive", property(vanish))
    assert list_engines() == [engine]
    assert list_engines() == []
