"""One client and its engine: the ordinary way, bad starts, and bad messages."""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path

import anyio
import msgspec
import pytest
import zmq

from kernelserve.client.core_client import CoreClient
from kernelserve.client.registry import find, list_engines
from kernelserve.client.transport import ClientTransport
from kernelserve.errors import (
    EngineConfigError,
    EngineCrashError,
    EngineDeadError,
    EngineImportError,
    EngineProtocolError,
    EngineRequestError,
    EngineStartError,
    InvalidConfigError,
    WeightsMemoryError,
)
from kernelserve.protocol import EngineFailure, FinishReason, SchedulerStats
from tests.helpers.leftovers import engine_pids, left_files
from tests.process.engines import (
    collect,
    launch,
    make_request,
    mode_of,
    read_text,
    run_request,
    wait_for_death,
)

pytestmark = [pytest.mark.process, pytest.mark.anyio]
on_both_loops = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


@on_both_loops
async def test_a_request_goes_there_and_back():
    phases: list[str] = []
    async with launch(
        "fake:start_seconds=0.3", on_status=lambda status: phases.append(status.phase)
    ) as core:
        assert core.ready.model_type == "fake"
        assert core.ready.pid != os.getpid()
        tokens = await run_request(core, "a")
        assert len(tokens) == 4
        assert await run_request(core, "b") == tokens
        stats = msgspec.convert(await core.call_utility("stats"), SchedulerStats)
        assert (stats.num_running_reqs, stats.num_used_blocks) == (0, 0)
        records = await core.call_utility("step_records", 0)
        assert len(records) == 8
        await core.call_utility("check_integrity")
        with pytest.raises(EngineRequestError, match="no utility 'eval'"):
            await core.call_utility("eval")
    assert "load weights" in phases
    with pytest.raises(EngineDeadError, match="closed"):
        await core.add_request(make_request("c"))


async def test_stats_reach_zero_without_another_step():
    async with launch() as core:
        await core.add_request(make_request("a", max_tokens=2))
        await collect(core, "a")
        with anyio.fail_after(2):
            last = await core.receive()
        assert last.outputs == []
        assert last.step_record is None
        assert last.scheduler_stats is not None
        assert last.scheduler_stats.num_running_reqs == 0


async def test_trap_21_abort_right_behind_its_add():
    async with launch("fake:step_seconds=0.02") as core:
        for i in range(5):
            await core.add_request(make_request(f"r{i}", max_tokens=5000))
            await core.abort([f"r{i}"])
        assert len(await run_request(core, "last")) == 4
        stats = msgspec.convert(await core.call_utility("stats"), SchedulerStats)
        assert (stats.num_running_reqs, stats.num_waiting_reqs) == (0, 0)


async def test_trap_28_a_request_that_cannot_be_built_ends_alone():
    async with launch() as core:
        wrong = msgspec.structs.replace(make_request("wrong"))
        wrong.prompt_token_ids = ["x"]  # type: ignore[list-item]
        await core.add_request(wrong)
        (output,) = await collect(core, "wrong")
        assert output.finish_reason is FinishReason.ERROR
        assert "str" in str(output.stop_reason)
        await core.add_request(make_request("huge", prompt=20_000))
        (output,) = await collect(core, "huge")
        assert output.finish_reason is FinishReason.ERROR
        assert "20000" in str(output.stop_reason)
        assert len(await run_request(core, "good")) == 4


class _Bomb:
    def __reduce__(self):
        return (os._exit, (1,))


async def test_d7_garbage_and_pickles_are_dropped_and_logged():
    async with launch() as core:
        descriptor = find(core.engine_id)
        assert descriptor is not None
        with zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
            stranger.linger = 500
            stranger.connect(descriptor.address)
            for frames in (
                [b""],
                [b"\x00"],
                [b"\x00", pickle.dumps(_Bomb())],
                [
                    b"\x00",
                    msgspec.msgpack.encode({"protocol_version": 1, "output_address": "tcp://x"}),
                ],
                [b"\x01", pickle.dumps(_Bomb())],
                [b"\x09", b"\x91" * 100_000],
                [b"\x03", msgspec.msgpack.encode([1, "shutdown", []])],
                [os.urandom(3) for _ in range(20)],
            ):
                stranger.send_multipart(frames)
            send = core._transport._dealer.send_multipart
            for kind in (b"\x00", b"\x01", b"\x02", b"\x03", b"\x07"):
                send([kind, pickle.dumps(_Bomb())])
                send([kind, b"\x91" * 100_000])
            assert len(await run_request(core, "a")) == 4
            with anyio.fail_after(5):
                while "before HELLO" not in read_text(core.log_path):
                    await anyio.sleep(0.02)
            assert len(await run_request(core, "b")) == 4


@pytest.mark.parametrize(
    ("field", "value", "wanted"),
    [("token", "wrong", "wrong token"), ("protocol_version", 999, "999")],
)
async def test_d7_strangers_are_refused(field, value, wanted):
    async with launch() as core:
        descriptor = find(core.engine_id)
        assert descriptor is not None
        transport = ClientTransport(descriptor)
        transport._hello = msgspec.structs.replace(transport._hello, **{field: value})
        transport.say_hello()
        with anyio.fail_after(3):
            answer = await transport.receive()
        transport.close(say_goodbye=True)
        assert isinstance(answer, EngineFailure)
        assert wanted in answer.message
        assert (await core.call_utility("ping"))["clients"] == 1


async def test_a_version_mismatch_names_both_numbers(monkeypatch):
    async with launch(name="old") as core:
        monkeypatch.setattr("kernelserve.client.transport.PROTOCOL_VERSION", 7)
        with pytest.raises(EngineProtocolError, match="version 1, the client 7"):
            async with CoreClient.attach("old"):
                pass
        assert len(await run_request(core, "a")) == 4


async def test_d7_files_are_private():
    async with launch() as core:
        descriptor = find(core.engine_id)
        assert descriptor is not None
        run_dir = Path(descriptor.run_dir)
        assert mode_of(run_dir) == 0o700
        assert mode_of(run_dir / "engine.json") == 0o600
        assert mode_of(core.log_path) & 0o077 == 0
        assert len(os.fsencode(run_dir / "in.sock")) < 100


@pytest.mark.parametrize(
    ("failure", "error", "wanted"),
    [
        ("import", EngineImportError, "kernelserve_package_that_is_missing"),
        ("memory", WeightsMemoryError, "1 EiB"),
        ("error", EngineStartError, "RuntimeError: this fake model cannot be loaded"),
        ("crash", EngineCrashError, "SIGSEGV"),
        ("kill", EngineCrashError, "SIGKILL"),
        ("exit", EngineCrashError, "exit code 3"),
        ("no_such", EngineConfigError, "not a fake model"),
    ],
)
async def test_a8_each_failure_has_its_error(failure, error, wanted, runtime_folder):
    began = time.monotonic()
    with pytest.raises(EngineStartError) as caught:
        async with launch(f"fake:start_seconds=0.3,fail={failure}"):
            pytest.fail("it started")
    assert time.monotonic() - began < 3
    assert type(caught.value) is error
    first_line = str(caught.value).partition("\n")[0]
    assert wanted in first_line
    assert caught.value.phase == ("import" if failure == "no_such" else "load weights")
    assert read_text(caught.value.log_path)
    assert caught.value.log_path in str(caught.value)
    assert caught.value.log_tail
    assert engine_pids(runtime_folder) == []
    assert left_files(runtime_folder) == []


async def test_a8_an_import_error_before_the_sockets_are_up(tmp_path, monkeypatch):
    (tmp_path / "zmq.py").write_text("import kernelserve_package_that_is_missing\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    # The folder of the checkout is put before it, and must not hide it.
    with pytest.raises(EngineImportError, match="kernelserve_package_that_is_missing"):
        async with launch():
            pytest.fail("it started")


async def test_a_file_in_the_working_directory_is_not_imported(tmp_path, monkeypatch):
    (tmp_path / "queue.py").write_text("raise RuntimeError('imported from the working directory')")
    monkeypatch.chdir(tmp_path)
    async with launch() as core:
        assert len(await run_request(core, "a")) == 4


@on_both_loops
async def test_a_cancelled_start_leaves_nothing(runtime_folder):
    with anyio.move_on_after(0.6) as scope:
        async with launch("fake:start_seconds=30"):
            pytest.fail("it started")
    assert scope.cancelled_caught
    assert engine_pids(runtime_folder) == []
    assert left_files(runtime_folder) == []


@on_both_loops
async def test_a_cancelled_session_ends_the_engine(runtime_folder):
    with anyio.move_on_after(1.0):
        async with launch("fake:step_seconds=0.01") as core:
            await core.add_request(make_request("a", max_tokens=5000))
            while True:
                await core.receive()
    assert engine_pids(runtime_folder) == []


async def test_a18_the_next_start_removes_what_a_killed_engine_left(runtime_folder):
    async with launch(lifetime="detached", name="x") as core:
        os.kill(core.ready.pid, 9)
        await wait_for_death(core)
    stale = runtime_folder / "e-0badcafe"
    stale.mkdir()
    (stale / "in.sock").touch()
    assert list_engines() == []
    async with launch():
        assert not stale.exists()


async def test_a_socket_path_that_is_too_long_is_said(monkeypatch, tmp_path):
    folder = tmp_path / ("x" * 90)
    monkeypatch.setenv("KERNELSERVE_RUNTIME_DIR", str(folder))
    with pytest.raises(InvalidConfigError, match="KERNELSERVE_RUNTIME_DIR"):
        async with launch():
            pytest.fail("it started")


async def test_a7_no_usable_streams_and_a_very_long_log(monkeypatch):
    class NoFileno:
        def write(self, text):
            return len(text)

        def flush(self):
            return None

        def fileno(self):
            raise OSError("fileno")

    monkeypatch.setattr("sys.stdout", NoFileno())
    monkeypatch.setattr("sys.stderr", object())
    async with launch() as core:
        _write_to_stderr_of(core.ready.pid, num_mib=50)
        # A dropped message is logged behind that.
        core._transport._dealer.send_multipart([b"\x09", b""])
        assert len(await run_request(core, "a")) == 4


def _write_to_stderr_of(pid: int, *, num_mib: int) -> None:
    """Write through the engine's own stderr: a pipe that nobody drains would block here for ever."""
    with Path(f"/proc/{pid}/fd/2").open("ab", buffering=0) as stderr:
        for _ in range(num_mib):
            assert stderr.write(b"x" * 2**20) == 2**20


async def test_two_engines_at_once_do_not_collide():
    async with launch() as one, launch() as two:
        assert one.engine_id != two.engine_id
        assert await run_request(one, "a") == await run_request(two, "a")


async def test_old_logs_are_removed():
    for _ in range(2):
        async with launch() as core:
            folder = Path(core.log_path).parent
    for i in range(30):
        (folder / f"engine-old{i:02}.log").write_text("old")
    async with launch():
        assert len(list(folder.glob("engine-*.log"))) == 20
