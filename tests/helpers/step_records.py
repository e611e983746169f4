"""Step records made by hand."""

from __future__ import annotations

from typing import Any

from kernelserve.protocol import StepRecord


def make_record(step: int, granted: dict[str, int] | None = None, **fields: Any) -> StepRecord:
    """A record with sensible rest: 0.01 s long, at step x 0.1 s."""
    granted = granted or {}
    num_decode = fields.pop("num_decode_tokens", 0)
    values: dict[str, Any] = {
        "timestamp": step * 0.1,
        "token_budget": 64,
        "num_prefill_tokens": sum(granted.values()) - num_decode,
        "new_req_ids": [],
        "resumed_req_ids": [],
        "preempted_req_ids": [],
        "finished_req_ids": [],
        "refusals": [],
        "num_running_reqs": len(granted),
        "num_waiting_reqs": 0,
        "num_used_blocks": 0,
        "num_cached_blocks": 0,
        "num_free_blocks": 0,
        "execute_time": 0.01,
    } | fields
    return StepRecord(
        step=step, num_scheduled_tokens=granted, num_decode_tokens=num_decode, **values
    )
