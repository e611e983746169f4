"""The fake runner under a real scheduler: solo, batched, chunked and preempted are the same."""

from __future__ import annotations

from kernelserve.config import EngineConfig
from kernelserve.executor.fake import FakeExecutor, fake_next_token
from tests.helpers.engine_driver import EngineDriver, greedy


def make_executor() -> FakeExecutor:
    return FakeExecutor(EngineConfig(block_size=4, num_gpu_blocks=256), lambda *_: None)


def plain(prompt: list[int], count: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(fake_next_token(tokens[-1], len(tokens)))
    return tokens[len(prompt) :]


def test_every_schedule_gives_the_same_answers() -> None:
    executor = make_executor()
    prompts = [[i + 1] * (3 * i + 1) for i in range(8)]
    expected = [plain(prompt, 20) for prompt in prompts]
    for options in ({}, {"chunk": 2}, {"num_blocks": 14}, {"enable_prefix_caching": False}):
        driver = EngineDriver(executor, **options)
        results = driver.generate(prompts, greedy(20))
        assert [result.token_ids for result in results] == expected
        assert executor.num_known_requests == 0
