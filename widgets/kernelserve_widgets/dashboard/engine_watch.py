"""Looks at the engine of a notebook without disturbing it, and tells whether there is news."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

import kernelserve as ks
from kernelserve.protocol import EngineReady, KVCacheMap, SchedulerStats
from kernelserve_widgets.dashboard.block_map_source import BlockMapSource
from kernelserve_widgets.dashboard.dashboard_metrics import DashboardMetrics
from kernelserve_widgets.dashboard.dashboard_numbers import DashboardNumbers
from kernelserve_widgets.dashboard.memory_numbers import MemoryNumbers
from kernelserve_widgets.history.request_names import RequestNames

__all__ = ["EngineWatch"]

_MEMORY_S = 1.0

FindLLM = Callable[[], "ks.LLM | None"]


class EngineWatch:
    """Follows the engine that `find_llm` returns, and the next one when that has ended.

    The LLM is let go after each look: a dashboard keeps no engine alive. Only the block map is asked for; all else has
    come with the outputs of requests already.
    """

    def __init__(self, find_llm: FindLLM) -> None:
        self._find_llm = find_llm
        self._metrics = DashboardMetrics()
        self._maps = BlockMapSource()
        self._ready: EngineReady | None = None
        self._stats = SchedulerStats()
        self._is_alive = False
        self._memory: MemoryNumbers | None = None
        self._next_memory = 0.0
        self.block_map: KVCacheMap | None = None
        """The last one that has come."""

    @property
    def names(self) -> RequestNames:
        """Labels and colours of the engine's requests."""
        return self._metrics.history.names

    @property
    def ready(self) -> EngineReady | None:
        """What the engine said of itself; of the last one if none runs."""
        return self._ready

    @property
    def last_budget(self) -> int | None:
        """The token budget of the last step."""
        records = self._metrics.history.records
        return records[-1].token_budget if records else None

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs and nothing waits."""
        return not self._stats.num_running_reqs and not self._stats.num_waiting_reqs

    @property
    def is_at_rest(self) -> bool:
        """Whether the engine is idle and nothing is under way from it."""
        return self.is_idle and (self._maps.is_settled or not self._is_alive)

    @property
    def title(self) -> str:
        """Which engine this is, in a line."""
        if self._ready is None:
            return "kernelserve · no engine runs yet"
        config = self._ready.config
        name = Path(config.model).name if config.model.startswith("/") else config.model
        parts = ["kernelserve", name, str(config.device), str(config.dtype)]
        if not self._is_alive:
            parts.append("this engine has ended")
        return " · ".join(part for part in parts if part not in ("None", "auto"))

    def look(self) -> bool:
        """Take in what has come. False if there is no news."""
        try:
            llm = self._find_llm()
            return self._end() if llm is None else self._look_at(llm)
        except ks.KernelserveError:  # it ended just now
            return self._end()

    def numbers(self) -> DashboardNumbers:
        """Return what there is to show."""
        return self._metrics.numbers(self._read_memory())

    def _read_memory(self) -> MemoryNumbers | None:
        """Look at the processes once in a while: that takes as long as a plot."""
        now = time.monotonic()
        if self._memory is not None and now < self._next_memory:
            self._memory = self._memory.after(self._stats)
        elif self._ready is not None:
            self._next_memory = now + _MEMORY_S
            self._memory = MemoryNumbers.read(self._ready, self._stats)
        return self._memory

    def _look_at(self, llm: ks.LLM) -> bool:
        ready = llm.engine
        is_new = self._ready is None or ready.engine_id != self._ready.engine_id
        if is_new:
            self._metrics, self._maps, self.block_map = DashboardMetrics(), BlockMapSource(), None
            self._memory = None
        is_other = is_new or not self._is_alive
        self._ready, self._is_alive = ready, True
        records = llm.recent_step_records(self._metrics.next_step)
        self._stats = _with_total(llm.latest_stats, ready)
        changed = self._metrics.update(records, self._stats) or is_other
        if changed:
            self._maps.want()
        self._maps.ask_if_due(llm)
        if (block_map := self._maps.take()) is not None:
            self.block_map = block_map
            changed = True
        return changed

    def _end(self) -> bool:
        """Let the gauges say that nothing runs."""
        if not self._is_alive:
            return False
        self._is_alive = False
        self._next_memory = 0.0
        self._stats = msgspec.structs.replace(
            self._stats,
            num_running_reqs=0,
            num_waiting_reqs=0,
            num_used_blocks=0,
            num_cached_blocks=0,
            num_free_blocks=self._stats.num_total_blocks,
            kv_cache_usage=0.0,
            encoder_cache_used=0,
            encoder_cache_cached=0,
        )
        self._metrics.update([], self._stats)
        return True


def _with_total(stats: SchedulerStats, ready: EngineReady) -> SchedulerStats:
    """Fill in the sizes of an engine that has not sent any gauges yet."""
    if stats.num_total_blocks:
        return stats
    total = ready.num_gpu_blocks - 1  # without the null block
    encoder = ready.config.encoder_cache_size if ready.mm_processor_dir else 0
    return msgspec.structs.replace(
        stats, num_total_blocks=total, num_free_blocks=total, encoder_cache_size=encoder
    )
