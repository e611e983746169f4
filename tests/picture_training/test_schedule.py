"""The learning rate over a stage of training."""

from __future__ import annotations

import torch

from kernelserve.picture_training.schedule import Schedule


def test_rates_rise_then_fall_until_the_time_is_over():
    slow, fast = (torch.nn.Parameter(torch.zeros(1)) for _ in range(2))
    optimizer = torch.optim.SGD([{"params": [slow], "lr": 1.0}, {"params": [fast], "lr": 3.0}])
    times = iter(range(1000))
    schedule = Schedule(optimizer, minutes=5, clock=lambda: float(next(times)))
    rates: list[list[float]] = []
    shares: list[float] = []
    for step in schedule.steps():
        assert step == len(rates)
        rates.append([group["lr"] for group in optimizer.param_groups])
        shares.append(schedule.share)
    assert len(rates) == 299
    assert all(abs(fast - 3 * slow) < 1e-9 for slow, fast in rates)
    highest = max(range(299), key=lambda i: rates[i][0])
    assert 0.01 < shares[highest] < 0.05
    assert rates[0][0] < 0.2
    assert rates[highest][0] > 0.9
    assert rates[149][0] < 0.6
    assert rates[-1][0] < 0.03
