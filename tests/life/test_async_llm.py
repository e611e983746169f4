"""AsyncLLM on asyncio and trio, against a real engine process with a fake model."""

from __future__ import annotations

import gc

import anyio
import pytest

import kernelserve as ks
from kernelserve.executor.fake import fake_next_token

pytestmark = [pytest.mark.process, pytest.mark.anyio]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


@pytest.fixture
async def engine(runtime_folder):
    async with ks.AsyncLLM(
        "fake:step_seconds=0.002", fake_model=True, max_num_seqs=4, num_gpu_blocks=512
    ) as engine:
        yield engine


def params(max_tokens: int, **options) -> ks.SamplingParams:
    """DELTA outputs without text."""
    return ks.SamplingParams(
        max_tokens=max_tokens,
        detokenize=False,
        output_kind=ks.RequestOutputKind.DELTA,
        **options,
    )


def expected(prompt: list[int], count: int) -> list[int]:
    ids = list(prompt)
    for _ in range(count):
        ids.append(fake_next_token(ids[-1], len(ids)))
    return ids[len(prompt) :]


async def is_idle(engine: ks.AsyncLLM) -> bool:
    stats = await engine.stats()
    return (stats.num_running_reqs, stats.num_waiting_reqs, stats.num_used_blocks) == (0, 0, 0)


async def wait_idle(engine: ks.AsyncLLM) -> None:
    with anyio.fail_after(3):
        while not await is_idle(engine):
            await anyio.sleep(0.005)


async def take(engine: ks.AsyncLLM, prompt: list[int], count: int, **options) -> list[int]:
    ids = []
    async for output in engine.generate(prompt, params(count, **options)):
        ids += output.outputs[0].token_ids
    return ids


async def test_t12_a_slow_consumer_loses_nothing(engine):
    async def slow(i: int) -> None:
        ids, finishes = [], []
        async for output in engine.generate([i, 7], params(20, logprobs=1)):
            completion = output.outputs[0]
            assert len(completion.logprobs) == len(completion.token_ids)
            ids += completion.token_ids
            finishes.append(completion.finish_reason)
            await anyio.sleep(0.02)
        assert ids == expected([i, 7], 20)
        assert finishes[-1] == "length"
        assert finishes.count(None) == len(finishes) - 1

    async with anyio.create_task_group() as tasks:
        for i in range(32):
            tasks.start_soon(slow, i)


async def test_t43_leaving_the_loop_aborts(engine):
    async for _ in engine.generate([1, 2], params(4000)):
        break
    gc.collect()  # trio's own frames may hold the stream a moment longer
    await wait_idle(engine)


async def test_t43_aclose_aborts(engine):
    stream = engine.generate([1, 2], params(4000))
    await anext(stream)
    await stream.aclose()
    await wait_idle(engine)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_t43_dropping_the_stream_aborts(engine):
    stream = engine.generate([1, 2], params(4000))
    await anext(stream)
    del stream
    gc.collect()
    await wait_idle(engine)


async def test_t43_cancelling_a_sleeping_consumer_aborts(engine):
    async def consume() -> None:
        async for _ in engine.generate([1, 2], params(4000)):
            await anyio.sleep(60)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(consume)
        await anyio.sleep(0.1)
        tasks.cancel_scope.cancel()
    gc.collect()
    await wait_idle(engine)


async def test_t43_a_request_cancelled_in_the_queue_never_runs(engine):
    async with anyio.create_task_group() as tasks:
        for i in range(4):
            tasks.start_soon(take, engine, [i], 4000)
        await anyio.sleep(0.1)
        with anyio.move_on_after(0.1) as scope:
            await take(engine, [99], 4000)
        assert scope.cancelled_caught
        assert (await engine.stats()).num_waiting_reqs == 0
        tasks.cancel_scope.cancel()
    await wait_idle(engine)
    records = await engine.step_records()
    assert max(len(record.num_scheduled_tokens) for record in records) == 4


async def test_t44_cancel_at_any_moment_of_a_submit_leaves_nothing(engine):
    for i in range(60):
        with anyio.move_on_after(i * 0.0002):
            await take(engine, [i + 1, 2], 50)
    await wait_idle(engine)
    assert await take(engine, [5, 6], 5) == expected([5, 6], 5)


async def test_abort_by_the_callers_id_ends_the_stream_with_its_reason(engine):
    stream = engine.generate([1, 2], params(4000), request_id="mine")
    await anext(stream)
    await engine.abort("mine")
    outputs = [output async for output in stream]
    assert outputs[-1].outputs[0].finish_reason == "abort"
    assert outputs[-1].request_id == "mine"
    await wait_idle(engine)


async def test_t25_three_answers_in_one_stream(engine):
    finished = {}
    last = None
    async for last in engine.generate([1, 2], params(10, n=3, seed=5)):
        for completion in last.outputs:
            if completion.finished:
                finished[completion.index] = completion.finish_reason
    assert finished == {0: "length", 1: "length", 2: "length"}
    assert last is not None
    assert last.finished


async def test_a_bad_request_is_refused_and_harms_nobody(engine):
    with pytest.raises(ks.InvalidRequestError, match="8176"):
        await take(engine, [1] * 9000, 5)
    with pytest.raises(ks.InvalidRequestError, match="token ids"):
        await anext(engine.generate("text", params(5)))
    assert await take(engine, [5, 6], 5) == expected([5, 6], 5)


async def test_t14_what_can_never_fit_is_refused_at_once(runtime_folder):
    async with ks.AsyncLLM("fake", fake_model=True, num_gpu_blocks=51) as engine:
        for _ in range(5):
            with pytest.raises(ks.InvalidRequestError, match="800"):
                await take(engine, list(range(10, 910)), 5)
        assert await take(engine, [5, 6], 5) == expected([5, 6], 5)


async def test_the_prefix_cache_can_be_reset(engine):
    prompt = list(range(100, 164))
    await take(engine, prompt, 1)
    stream = engine.generate(prompt, params(1))
    assert (await anext(stream)).num_cached_tokens == 48  # T32: never all 64
    await wait_idle(engine)
    assert await engine.reset_prefix_cache()
    assert await engine.reset_encoder_cache()
    stream = engine.generate(prompt, params(1))
    assert (await anext(stream)).num_cached_tokens == 0


async def test_t39_other_salt_other_prefix(engine):
    prompt = list(range(100, 164))
    hits = []
    for salt in ("one", "one", "two", None):
        stream = engine.generate(prompt, params(1), cache_salt=salt)
        hits.append((await anext(stream)).num_cached_tokens)
    assert hits == [0, 48, 0, 0]


async def test_an_idle_engine_unloads_and_comes_back_by_itself(runtime_folder):
    async with ks.AsyncLLM("fake", fake_model=True, idle_unload_s=0.5) as engine:
        first = (await engine.start()).pid
        assert await take(engine, [5, 6], 5) == expected([5, 6], 5)
        await anyio.sleep(2.5)
        assert await take(engine, [5, 6], 5) == expected([5, 6], 5)
        assert (await engine.start()).pid != first


async def test_the_limits_can_be_changed_while_it_runs(engine):
    await engine.configure(max_num_seqs=2)
    async with anyio.create_task_group() as tasks:
        for i in range(6):
            tasks.start_soon(take, engine, [i, 1], 30)
    records = await engine.step_records()
    assert max(len(record.num_scheduled_tokens) for record in records) == 2
    with pytest.raises(ks.EngineRequestError, match="max_num_seqs"):
        await engine.configure(max_num_seqs=0)
