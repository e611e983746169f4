"""mm_processor_cache_type='shm' with real processes: the same answers, and no memory left when either side is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import kernelserve as ks
from tests.helpers.leftovers import wait_until
from tests.helpers.pictures import random_picture
from tests.helpers.vision_reference import VisionReference

pytestmark = pytest.mark.process

PICTURES = [random_picture(70, 40, 1), random_picture(30, 60, 2), random_picture(16, 16, 3)]
GREEDY = ks.SamplingParams(temperature=0, max_tokens=10, ignore_eos=True)
ORDER = (0, 0, 1, 2, 0, 1, 1)
CLIENT = """
import sys, kernelserve as ks
from tests.helpers.pictures import random_picture
llm = ks.LLM.attach("shared")
content = [{"type": "image", "image": random_picture(16, 16, 9)}, {"type": "text", "text": "the"}]
llm.chat([{"role": "user", "content": content}], ks.SamplingParams(max_tokens=2), use_tqdm=False)
print("done", flush=True)
sys.stdin.read()
"""


def chat_of(picture: Any) -> list[dict[str, Any]]:
    content = [{"type": "image", "image": picture}, {"type": "text", "text": "the"}]
    return [{"role": "user", "content": content}]


def num_segments(pid: int) -> int:
    """Segments that a process has mapped."""
    return Path(f"/proc/{pid}/maps").read_text().count("memfd:kernelserve-images")


def test_shared_memory_never_changes_an_answer_and_outlives_nobody(
    tmp_path, runtime_folder, monkeypatch
):
    reference = VisionReference("llava", tmp_path)
    llm = ks.LLM(
        str(reference.folder),
        dtype="float32",
        device="cpu",
        num_gpu_blocks=200,
        num_threads=1,
        show_progress=False,
        name="shared",
        lifetime="linger",
        mm_processor_cache_type="shm",
        mm_processor_cache_bytes=7000,  # two pictures of 3 KiB
    )
    engine, own = llm.engine.pid, os.getpid()
    chats = [chat_of(PICTURES[i]) for i in ORDER]
    answers = [o.outputs[0].token_ids for o in llm.chat(chats, GREEDY, use_tqdm=False)]
    text = "<|im_start|>user\n<image>the<|im_end|>\n<|im_start|>assistant\n"
    expected = [reference.answer(text, [picture], 10) for picture in PICTURES]
    assert answers == [expected[i] for i in ORDER]
    assert num_segments(engine) == num_segments(own) == 1

    # The engine comes to a request after its image was overwritten: it asks, and gets it.
    sender: Any = llm._handle.open()._core._images  # type: ignore[union-attr]
    recall = Mock(wraps=sender.recall)
    monkeypatch.setattr(sender, "recall", recall)
    os.kill(engine, signal.SIGSTOP)
    pending = [llm.submit(llm.render_chat(chat), GREEDY) for chat in chats]
    wait_until(lambda: len(sender._shortened) == len(pending), "not all are sent")
    os.kill(engine, signal.SIGCONT)
    for one, answer in zip(pending, answers, strict=True):
        one.done.result(60)
        output = one.take()
        assert output is not None
        assert output.outputs[0].token_ids == answer
    assert recall.call_count == 4
    assert not sender._shortened

    # A client is killed: the engine lets go of its segment and serves the others.
    with subprocess.Popen(
        [sys.executable, "-c", CLIENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"done\n"
        assert num_segments(engine) == 2
        client.kill()
    wait_until(lambda: num_segments(engine) == 1, "the engine keeps the memory of a dead client")
    [output] = llm.chat(chats[0], GREEDY, use_tqdm=False)
    assert output.outputs[0].token_ids == answers[0]

    # The engine is killed: its clients let go.
    os.kill(engine, signal.SIGKILL)
    with pytest.raises(ks.EngineDeadError):
        llm.chat(chats[0], GREEDY, use_tqdm=False)
    llm.close()
    wait_until(lambda: num_segments(own) == 0, "the client keeps the memory")
