"""The self-check is only worth something if it notices damage."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernelserve.core.request import RequestStatus
from tests.helpers.scheduling import Engine


def leak_block(engine: Engine) -> None:
    engine.kv.pool.allocate(1)


def lose_reference(engine: Engine) -> None:
    engine.kv.tables["a"].blocks[0].ref_cnt -= 1


def free_used_block(engine: Engine) -> None:
    engine.kv.pool.free([engine.kv.tables["a"].blocks[-1]])


def share_unhashed_block(engine: Engine) -> None:
    block = engine.kv.tables["a"].blocks[-1]
    block.ref_cnt += 1
    engine.kv.tables["b"].blocks.append(block)


def hold_block_twice(engine: Engine) -> None:
    block = engine.kv.tables["a"].blocks[0]
    block.ref_cnt += 1
    engine.kv.tables["a"].blocks.append(block)


def own_null_block(engine: Engine) -> None:
    engine.kv.tables["a"].blocks.append(engine.kv.pool.null_block)


def reference_null_block(engine: Engine) -> None:
    engine.kv.pool.null_block.ref_cnt += 1


def break_link(engine: Engine) -> None:
    first = engine.kv.pool.free_queue.pop_front()
    engine.kv.pool.free_queue.push_front(first)
    first.prev_free = first


def forget_name(engine: Engine) -> None:
    engine.kv.pool.cached.clear()


def miscount_cached(engine: Engine) -> None:
    engine.kv.pool.num_cached_blocks += 1


def miscount_promises(engine: Engine) -> None:
    engine.kv.num_promised_blocks += 1


def lose_running(engine: Engine) -> None:
    engine.scheduler._state.running.pop()


def lose_waiting(engine: Engine) -> None:
    state = engine.scheduler._state
    state.waiting.remove(state.requests["c"])


def leave_request(engine: Engine) -> None:
    state = engine.scheduler._state
    state.requests["ghost"] = state.requests["a"]


def leave_table(engine: Engine) -> None:
    tables = engine.kv.tables
    tables["ghost"] = tables.pop("a")


def finish_silently(engine: Engine) -> None:
    engine.scheduler.requests["a"].status = RequestStatus.FINISHED_STOPPED


def compute_too_much(engine: Engine) -> None:
    engine.scheduler.requests["a"].num_computed_tokens += 50


@pytest.mark.parametrize(
    "damage",
    [
        leak_block,
        lose_reference,
        free_used_block,
        share_unhashed_block,
        hold_block_twice,
        own_null_block,
        reference_null_block,
        break_link,
        forget_name,
        miscount_cached,
        miscount_promises,
        lose_running,
        lose_waiting,
        leave_request,
        leave_table,
        finish_silently,
        compute_too_much,
    ],
)
def test_damage_is_noticed(damage: Callable[[Engine], None]) -> None:
    engine = Engine(max_num_seqs=2)
    for req_id, first in (("a", 0), ("b", 50), ("c", 90)):
        engine.submit(req_id, list(range(first, first + 6)))
    engine.step()
    engine.scheduler.check_integrity()
    damage(engine)
    with pytest.raises(AssertionError):
        engine.scheduler.check_integrity()
