"""Who dies with whom, how it is noticed, and what is left: nothing."""

from __future__ import annotations

import os
import shutil
import signal
import time

import anyio
import pytest

from kernelserve.client.core_client import CoreClient
from kernelserve.client.registry import find, list_engines
from kernelserve.errors import (
    EngineDeadError,
    EngineStartError,
    EngineUnloadedError,
    InvalidConfigError,
)
from kernelserve.process_identity import is_process_alive
from kernelserve.protocol import EngineCoreOutput, FinishReason
from tests.helpers.leftovers import assert_nothing_left, engine_pids, left_files, wait_until
from tests.process.engines import (
    launch,
    make_request,
    read_text,
    run_request,
    wait_for_death,
)

pytestmark = pytest.mark.process
on_both_loops = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


# The owner dies.


@pytest.mark.parametrize(
    ("program", "model"),
    [
        ("idle", "fake"),
        ("load", "fake:start_seconds=30"),
        ("generate", "fake:step_seconds=0.005"),
        ("generate", "fake:step_seconds=0.9"),
    ],
    ids=["idle", "mid-load", "mid-step", "mid-long-step"],
)
def test_a2_the_engine_dies_with_a_killed_owner(parent, runtime_folder, program, model):
    owner = parent(program, model)
    assert owner.stdout.readline().strip()
    assert len(engine_pids(runtime_folder)) == 1
    owner.kill()
    assert_nothing_left(runtime_folder, timeout=5)


def test_a2_a_forked_child_does_not_keep_the_engine_alive(parent, runtime_folder):
    owner = parent("forked")
    owner.stdout.readline()
    forked_pid = int(owner.stdout.readline())
    owner.kill()
    assert_nothing_left(runtime_folder, timeout=5)
    assert is_process_alive(forked_pid)
    os.kill(forked_pid, signal.SIGKILL)


def test_a10_an_interrupt_of_the_group_does_not_reach_the_engine(parent, runtime_folder):
    owner = parent("idle")
    engine = int(owner.stdout.readline())
    assert os.getpgid(engine) == engine
    os.kill(engine, signal.SIGINT)
    time.sleep(0.3)
    assert is_process_alive(engine)


# The engine dies or hangs.


@pytest.mark.anyio
@on_both_loops
@pytest.mark.parametrize("model", ["fake", "fake:step_seconds=0.01"], ids=["idle", "mid-stream"])
async def test_a14_a_killed_engine_is_noticed_by_everybody(model):
    async with launch(model) as core:
        if "step" in model:
            await core.add_request(make_request("a", max_tokens=5000))
            await core.receive()
        os.kill(core.ready.pid, signal.SIGKILL)
        with anyio.fail_after(2):
            error = await wait_for_death(core)
        assert "SIGKILL" in str(error)
        assert core.log_path in str(error)
        with pytest.raises(EngineDeadError):
            await core.add_request(make_request("b"))
        with pytest.raises(EngineDeadError):
            await core.call_utility("ping")
        await core.abort(["a"])


@pytest.mark.anyio
async def test_a14_a_call_under_way_hears_of_the_death():
    async with launch("fake:step_seconds=0.5") as core:
        await core.add_request(make_request("a", max_tokens=100))
        await core.receive()

        async def kill() -> None:
            await anyio.sleep(0.1)
            os.kill(core.ready.pid, signal.SIGKILL)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(kill)
            with pytest.raises(EngineDeadError):
                await core.call_utility("ping")


@pytest.mark.anyio
@on_both_loops
async def test_a14_a_stopped_engine_is_noticed_and_removed(runtime_folder):
    async with launch(heartbeat_timeout=1.0) as core:
        os.kill(core.ready.pid, signal.SIGSTOP)
        began = time.monotonic()
        error = await wait_for_death(core)
        assert time.monotonic() - began < 2
        assert "no heartbeat for 1 s" in str(error)
    assert engine_pids(runtime_folder) == []
    assert left_files(runtime_folder) == []


@pytest.mark.anyio
async def test_a14_an_engine_that_wakes_up_in_time_goes_on():
    async with launch(heartbeat_timeout=2.0) as core:
        tokens = await run_request(core, "a")
        os.kill(core.ready.pid, signal.SIGSTOP)
        await anyio.sleep(0.8)
        os.kill(core.ready.pid, signal.SIGCONT)
        assert await run_request(core, "b") == tokens


@pytest.mark.anyio
async def test_a14_a_long_step_is_not_a_hang():
    async with launch("fake:step_seconds=0.8", heartbeat_timeout=1.5) as core:
        assert len(await run_request(core, "a", max_tokens=3)) == 3


@pytest.mark.anyio
async def test_trap_27_sigterm_lets_short_requests_end_and_leaves_a_notice():
    async with launch("fake:step_seconds=0.02") as core:
        await core.add_request(make_request("short", max_tokens=20))
        await core.add_request(make_request("long", max_tokens=5000))
        await core.receive()
        began = time.monotonic()
        os.kill(core.ready.pid, signal.SIGTERM)
        outputs: list[EngineCoreOutput] = []
        assert "SIGTERM" in str(await wait_for_death(core, outputs))
        assert time.monotonic() - began < 4
        ends = {o.request_id: o.finish_reason for o in outputs if o.finished}
        assert ends == {"short": FinishReason.LENGTH, "long": FinishReason.ABORT}


@pytest.mark.anyio
async def test_sigterm_while_loading_ends_the_start(runtime_folder):
    def kill(_: object) -> None:
        os.kill(engine_pids(runtime_folder)[0], signal.SIGTERM)

    with pytest.raises(EngineStartError, match="SIGTERM"), anyio.fail_after(3):
        async with launch("fake:start_seconds=30", on_status=kill):
            pytest.fail("it started")


@pytest.mark.anyio
async def test_a15_a_native_crash_is_heard_by_every_client():
    async with launch("fake", name="shared") as core, CoreClient.attach("shared") as other:
        os.kill(core.ready.pid, signal.SIGABRT)
        assert "SIGABRT" in str(await wait_for_death(core))
        assert "ended" in str(await wait_for_death(other))


# Lifetimes.


def test_a_detached_engine_survives_its_owner(parent, runtime_folder):
    owner = parent("idle", "fake", "detached")
    engine = int(owner.stdout.readline())
    owner.kill()
    owner.wait()
    time.sleep(1.2)
    assert is_process_alive(engine)
    assert [d.name for d in list_engines()] == ["default"]

    async def use_and_stop() -> None:
        async with CoreClient.attach("default") as core:
            assert len(await run_request(core, "a")) == 4
            await core.stop_engine()

    anyio.run(use_and_stop)
    assert_nothing_left(runtime_folder, timeout=1)


@pytest.mark.anyio
async def test_a_lingering_engine_is_found_again_and_ends_after_its_time(runtime_folder):
    async with launch(lifetime="linger", linger_s=1.5) as core:
        engine = core.ready.pid
        tokens = await run_request(core, "a")
    await anyio.sleep(0.3)
    async with launch(lifetime="linger", linger_s=1.5) as core:
        assert core.ready.pid == engine
        assert await run_request(core, "a") == tokens
    began = time.monotonic()
    while engine_pids(runtime_folder):
        await anyio.sleep(0.05)
        assert time.monotonic() - began < 4
    assert time.monotonic() - began > 1


@pytest.mark.anyio
async def test_another_model_replaces_a_lingering_engine_that_nobody_uses(runtime_folder):
    async with launch(lifetime="detached", name="n") as core:
        engine = core.ready.pid
    async with launch("fake:step_seconds=0", lifetime="detached", name="n") as core:
        assert core.ready.pid != engine
        assert not is_process_alive(engine)
        # And one that is used is not taken away.
        with pytest.raises(EngineStartError, match="other client"):
            async with launch("fake", lifetime="detached", name="n"):
                pytest.fail("it was replaced")
        assert len(await run_request(core, "a")) == 4
        await core.stop_engine()


@pytest.mark.anyio
async def test_an_engine_that_nobody_can_reach_ends(runtime_folder):
    async with launch(lifetime="detached") as core:
        await run_request(core, "a")
    for directory in runtime_folder.glob("e-*"):
        shutil.rmtree(directory)
    with anyio.fail_after(4):
        while engine_pids(runtime_folder):
            await anyio.sleep(0.05)


@pytest.mark.anyio
async def test_a20_an_idle_engine_unloads_itself_and_says_so():
    async with launch(idle_unload_s=1.0) as core:
        await run_request(core, "a")
        error = await wait_for_death(core)
        assert isinstance(error, EngineUnloadedError)
        assert "1 s without a request" in str(error)


@pytest.mark.anyio
@on_both_loops
async def test_two_clients_each_get_their_own():
    async with (
        launch("fake:step_seconds=0.002", name="shared") as one,
        CoreClient.attach("shared") as two,
    ):
        assert two.ready.client_index == one.ready.client_index + 1
        assert two.ready.engine_id == one.ready.engine_id
        results: dict[str, list[int]] = {}

        async def use(core: CoreClient, name: str) -> None:
            for i in range(5):
                results[f"{name}{i}"] = await run_request(core, f"{name}{i}", max_tokens=10)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(use, one, "one")
            tasks.start_soon(use, two, "two")
        assert len(results) == 10
        assert len({tuple(tokens) for tokens in results.values()}) == 1
        await two.add_request(make_request("b", max_tokens=5000))
        await two.receive()
        await two.aclose()
        # The rest of its requests are aborted, the other client goes on.
        assert len(await run_request(one, "c", max_tokens=10)) == 10
        ping = await one.call_utility("ping")
        assert (ping["clients"], ping["requests"]) == (1, 0)
        assert find("shared") is not None


def test_a10_a_client_that_is_killed_loses_only_its_own_requests(parent, runtime_folder):
    owner = parent("idle", "fake:step_seconds=0.01")
    owner.stdout.readline()
    guest = parent("attach", "default")
    guest.stdout.readline()

    async def watch() -> None:
        async with CoreClient.attach("default") as core:
            ping = await core.call_utility("ping")
            assert (ping["clients"], ping["requests"]) == (3, 1)
            guest.kill()
            guest.wait()
            with anyio.fail_after(2):
                while ping["clients"] != 2 or ping["requests"]:
                    await anyio.sleep(0.05)
                    ping = await core.call_utility("ping")
            assert len(await run_request(core, "mine")) == 4

    anyio.run(watch)
    sockets = [name for name in left_files(runtime_folder) if name.startswith("c-")]
    assert len(sockets) == 1


@pytest.mark.anyio
async def test_attaching_to_nothing_says_what_there_is():
    async with launch(name="here"):
        with pytest.raises(EngineDeadError, match="no engine 'there' runs \\(running: here\\)"):
            async with CoreClient.attach("there"):
                pass


@pytest.mark.anyio
async def test_an_engine_can_be_attached_to_while_it_loads():
    phases: list[str] = []
    async with anyio.create_task_group() as tasks:

        async def start(started: anyio.Event) -> None:
            async with launch("fake:start_seconds=0.8", name="slow"):
                await started.wait()

        done = anyio.Event()
        tasks.start_soon(start, done)
        await anyio.sleep(0.3)
        async with CoreClient.attach("slow", on_status=lambda s: phases.append(s.phase)) as core:
            assert len(await run_request(core, "a")) == 4
        done.set()
    assert "load weights" in phases


# Odd surroundings.


@pytest.mark.anyio
async def test_a17_loading_again_and_again_leaves_nothing(runtime_folder):
    tokens = set()
    for _ in range(3):
        async with launch() as core:
            tokens.add(tuple(await run_request(core, "a")))
        assert engine_pids(runtime_folder) == []
        assert left_files(runtime_folder) == []
    assert len(tokens) == 1


@pytest.mark.anyio
async def test_the_environment_of_the_kernel_does_not_reach_the_engine(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    monkeypatch.setenv("JPY_PARENT_PID", "1")
    async with launch() as core:
        environment = read_text(f"/proc/{core.ready.pid}/environ")
        assert "MPLBACKEND" not in environment
        assert "JPY_PARENT_PID" not in environment


def test_a2_the_runtime_folder_must_be_ours(monkeypatch, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "rt").symlink_to(elsewhere)
    monkeypatch.setenv("KERNELSERVE_RUNTIME_DIR", str(tmp_path / "rt"))

    async def start() -> None:
        async with launch():
            pytest.fail("it started")

    with pytest.raises(InvalidConfigError):
        anyio.run(start)


def test_a14_the_owner_of_many_engines_reaps_them(parent, runtime_folder):
    owner = parent("idle", "fake", "detached")
    engine = int(owner.stdout.readline())
    os.kill(engine, signal.SIGKILL)
    wait_until(lambda: not is_process_alive(engine), "it lives")
    owner.kill()
    owner.wait()
    assert list_engines() == []

    async def start() -> None:
        async with launch():
            pass

    anyio.run(start)
