"""The image processor in its process: what it gives, what it refuses, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from kernelserve.errors import EngineRequestError, InvalidRequestError
from kernelserve.multimodal.frame_pipe import FramePipe
from kernelserve.multimodal.processor_messages import ImageTask, ProcessorSpec
from kernelserve.multimodal.processor_process import ProcessorProcess
from kernelserve.wire import WireArray
from tests.helpers.leftovers import wait_until
from tests.helpers.tiny_processors import PROCESSORS, make_tiny_processor

pytestmark = pytest.mark.process


def task(width: int = 70, height: int = 40, **options) -> ImageTask:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return ImageTask(WireArray("uint8", pixels.shape, pixels.tobytes()), options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return make_tiny_processor("llava", tmp_path_factory.mktemp("llava"))


@pytest.fixture
def processor(folder):
    process = ProcessorProcess(ProcessorSpec(str(folder), str(folder)))
    yield process
    process.close()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("arch", PROCESSORS)
def test_each_model_gives_its_expansion_and_arrays(arch, tmp_path):
    made = make_tiny_processor(arch, tmp_path)
    process = ProcessorProcess(ProcessorSpec(str(made), str(made)))
    try:
        placeholder = process.placeholder()
        image = process.process(task())
    finally:
        process.close()
    assert placeholder in PROCESSORS[arch]["placeholder"]
    assert "pixel_values" in image.data
    assert image.expansion.count("<") >= 2
    assert image.data["pixel_values"].dtype == "float32"


def test_it_is_the_same_as_in_this_process(folder, processor):
    from transformers import AutoProcessor

    given = task()
    image = processor.process(given)
    pixels = np.frombuffer(given.pixels.data, np.uint8).reshape(given.pixels.shape)
    theirs = AutoProcessor.from_pretrained(folder)(
        images=[pixels], text=["<image>"], return_tensors="np", backend="pil"
    )
    ours = np.frombuffer(image.data["pixel_values"].data, np.float32)
    assert np.array_equal(ours.reshape(image.data["pixel_values"].shape), theirs["pixel_values"])
    assert image.expansion == "<image>" * 16


def test_options_reach_the_processor(processor):
    larger = processor.process(
        task(size={"shortest_edge": 24}, crop_size={"height": 24, "width": 24})
    )
    assert larger.data["pixel_values"].shape == (1, 3, 24, 24)
    assert larger.expansion == "<image>" * 36


def test_t59_a_refusal_harms_nobody_else(processor):
    good = processor.process(task())
    pid = processor.pid
    with pytest.raises(InvalidRequestError, match="refuses the image"):
        processor.process(task(size={"no_such_edge": 1}))
    assert processor.process(task()) == good
    assert processor.pid == pid


def test_it_can_be_started_before_the_first_image(processor):
    processor.prepare()
    wait_until(lambda: processor._placeholder == "<image>", "it is not there", timeout=60)
    pid = processor.pid
    assert processor.process(task()).expansion == "<image>" * 16
    assert processor.pid == pid


def test_closing_ends_a_start_at_any_moment(folder):
    others, began = image_processors(), time.monotonic()
    for delay in (0.0, 0.001, 0.01, 0.1):
        process = ProcessorProcess(ProcessorSpec(str(folder), str(folder)))
        process.prepare()
        time.sleep(delay)
        process.close()
        assert process.pid is None
        with pytest.raises(EngineRequestError, match="closed"):
            process.placeholder()
    wait_until(
        lambda: "image-processor-start" not in {thread.name for thread in threading.enumerate()},
        "a start goes on",
    )
    assert image_processors() == others
    assert time.monotonic() - began < 30


def image_processors() -> set[int]:
    """Processes that run image processors for this one."""
    pids = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    commands = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids}
    return {pid for pid, command in commands.items() if b"kernelserve.multimodal" in command}


def test_a_start_that_fails_is_told_to_whoever_uses_it(tmp_path):
    process = ProcessorProcess(ProcessorSpec(str(tmp_path), str(tmp_path)))
    process._prepare()
    with pytest.raises(EngineRequestError, match=str(tmp_path)):
        process.placeholder()


def test_it_starts_again_after_it_was_killed(processor):
    good = processor.process(task())
    os.kill(processor.pid, signal.SIGKILL)
    time.sleep(0.1)
    assert processor.process(task()) == good


def test_a_task_outlives_one_death_of_the_process(processor):
    good = processor.process(task())
    os.kill(processor.pid, signal.SIGSTOP)
    pid = processor.pid
    threading.Timer(0.3, os.kill, (pid, signal.SIGKILL)).start()
    assert processor.process(task()) == good
    assert processor.pid != pid


def test_a_process_that_dies_of_a_task_is_that_tasks_error_alone(processor, monkeypatch):
    good = processor.process(task())
    monkeypatch.setattr(FramePipe, "receive", Mock(side_effect=EOFError("closed")))
    with pytest.raises(EngineRequestError, match="image processor process ended: closed"):
        processor.process(task())
    monkeypatch.undo()
    assert processor.pid is None
    assert processor.process(task()) == good


def test_closing_is_final_and_does_not_wait_for_a_task(processor):
    processor.process(task())
    pid = processor.pid
    os.kill(pid, signal.SIGSTOP)
    errors: list[Exception] = []

    def use() -> None:
        try:
            processor.process(task())
        except Exception as error:
            errors.append(error)

    user = threading.Thread(target=use)
    user.start()
    time.sleep(0.2)
    processor.close()
    user.join(10)
    assert [type(error) for error in errors] == [EngineRequestError]
    assert not is_alive(pid)
    with pytest.raises(EngineRequestError, match="closed"):
        processor.process(task())


def test_a_folder_without_a_processor_is_named(tmp_path):
    process = ProcessorProcess(ProcessorSpec(str(tmp_path), str(tmp_path)))
    with pytest.raises(EngineRequestError, match=str(tmp_path)) as caught:
        process.placeholder()
    assert "\n" not in str(caught.value)
    assert process.pid is None


def test_it_ends_with_its_parent_and_leaves_torch_out_of_both(folder):
    code = f"""
        import os, sys, time
        from kernelserve.multimodal.processor_messages import *
        from kernelserve.multimodal.processor_process import ProcessorProcess
        process = ProcessorProcess(ProcessorSpec({str(folder)!r}, {str(folder)!r}))
        process.placeholder()
        maps = open(f"/proc/{{process.pid}}/maps").read()
        print(process.pid, "transformers" in sys.modules or "torch" in sys.modules, "libtorch" in maps, flush=True)
        os.kill(os.getpid(), 9)
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    pid, ours, theirs = run.stdout.split()
    assert (ours, theirs) == ("False", "False")
    deadline = time.monotonic() + 10
    while is_alive(int(pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(int(pid))


def test_an_interrupt_ends_the_process_and_the_next_task_works(processor):
    good = processor.process(task())
    os.kill(processor.pid, signal.SIGSTOP)
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            processor.process(task())
    finally:
        signal.signal(signal.SIGINT, previous)
    assert processor.pid is None
    assert processor.process(task()) == good
