"""A real engine, watched: the numbers are its records, and nothing is asked while nothing changes."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest

import kernelserve as ks
from kernelserve.protocol import KVCacheMap
from kernelserve_widgets.dashboard.engine_watch import EngineWatch
from tests.helpers.leftovers import assert_nothing_left

pytestmark = pytest.mark.process


@pytest.fixture
def llm(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("rt")
    monkeypatch.setenv("KERNELSERVE_RUNTIME_DIR", str(folder))
    with ks.LLM(
        "fake:step_seconds=0.005",
        fake_model=True,
        show_progress=False,
        num_gpu_blocks=65,
        max_num_batched_tokens=64,
        max_num_seqs=3,
    ) as llm:
        yield llm
    assert_nothing_left(folder, timeout=8)


class CountingLLM:
    """Passes on what a watch may use, and counts what costs a round trip."""

    def __init__(self, llm: ks.LLM) -> None:
        self._llm = llm
        self.num_maps = 0

    def kv_cache_map(self) -> KVCacheMap:
        self.num_maps += 1
        return self._llm.kv_cache_map()

    def __getattr__(self, name: str) -> object:
        assert name in ("engine", "latest_stats", "recent_step_records"), name
        return getattr(self._llm, name)


def look_until(watch: EngineWatch, condition, timeout: float = 10) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "nothing came"
        time.sleep(0.01)
        watch.look()


def params(max_tokens: int) -> ks.SamplingParams:
    return ks.SamplingParams(max_tokens=max_tokens, detokenize=False)


def test_the_numbers_are_the_records_of_the_engine(llm):
    watch = EngineWatch(lambda: llm)
    assert watch.look()  # the first sight of an engine is news
    prompts = [[index + 1] * 30 for index in range(7)]
    outputs = llm.generate(prompts, params(12), use_tqdm=False)
    look_until(watch, lambda: watch.is_idle and watch.numbers().steps)
    numbers, records = watch.numbers(), llm.step_records()
    assert numbers.steps == [record.step for record in records]
    assert numbers.prefill == [record.num_prefill_tokens for record in records]
    assert numbers.decode == [record.num_decode_tokens for record in records]
    assert sum(numbers.prefill) == 7 * 30 - llm.stats().prefix_cache_stats.hits
    generated = sum(len(output.outputs[0].token_ids) for output in outputs)
    assert sum(numbers.decode) == generated - 7
    assert [row.text.split(" · ")[0] for row in numbers.rows] == ["12 tokens"] * 7
    assert numbers.memory is not None
    for resident in (numbers.memory.engine_resident, numbers.memory.kernel_resident):
        assert resident is not None
        assert resident > 1 << 20
    assert numbers.memory.kv_cache == llm.engine.kv_cache_bytes


def test_the_map_is_the_pool_after_the_last_step(llm):
    watch = EngineWatch(lambda: llm)
    llm.generate([[1] * 100], params(4), use_tqdm=False)
    look_until(watch, lambda: watch.is_at_rest and watch.block_map is not None)
    assert watch.block_map is not None
    states, stats = Counter(watch.block_map.states), llm.stats()
    assert (states[0], states[1]) == (stats.num_free_blocks, stats.num_cached_blocks)
    assert states[1] > 0


def test_nothing_is_asked_and_nothing_is_news_at_rest(llm):
    counting = CountingLLM(llm)
    watch = EngineWatch(lambda: counting)  # type: ignore[arg-type, return-value]
    llm.generate([[1, 2]], params(3), use_tqdm=False)
    watch.look()
    look_until(watch, lambda: watch.is_at_rest)
    asked, steps = counting.num_maps, llm.stats().num_steps
    assert asked > 0
    assert not any(watch.look() for _ in range(50))
    assert (counting.num_maps, llm.stats().num_steps) == (asked, steps)


def test_the_map_is_asked_for_at_most_twice_a_second(llm):
    counting = CountingLLM(llm)
    watch = EngineWatch(lambda: counting)  # type: ignore[arg-type, return-value]
    work = threading.Thread(
        target=llm.generate, args=([[1, 2]], params(200)), kwargs={"use_tqdm": False}
    )
    began = time.monotonic()
    work.start()
    while work.is_alive():
        watch.look()
        time.sleep(0.005)
    assert 1 <= counting.num_maps <= 2 + 2 * (time.monotonic() - began)


def test_an_engine_that_ended_shows_zeros_and_the_next_one_begins_anew(llm):
    found: list[ks.LLM | None] = [llm]
    watch = EngineWatch(lambda: found[0])
    llm.generate([[1, 2]], params(3), use_tqdm=False)
    look_until(watch, lambda: watch.numbers().steps)
    found[0] = None
    assert watch.look()
    assert not watch.look()
    assert watch.title.endswith("this engine has ended")
    assert watch.numbers().is_idle
    assert watch.numbers().num_used_blocks == 0
    found[0] = llm
    assert watch.look()
    llm.close()
    with ks.LLM("fake", fake_model=True, show_progress=False) as other:
        found[0] = other
        assert watch.look()
        assert watch.numbers().steps == []
        assert watch.numbers().num_total_blocks == other.engine.num_gpu_blocks - 1


def test_a_dashboard_keeps_no_engine_alive(llm):
    watch = EngineWatch(ks.LLM.running)
    assert watch.look()
    llm.close()
    watch.look()
    assert ks.LLM.running() is None
    assert not watch.look()
