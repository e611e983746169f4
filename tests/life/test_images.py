"""Pictures through everything: LLM, the image processor's process, the engine; answers equal to transformers'."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import kernelserve as ks
from tests.helpers.bad_sources import bad_sources
from tests.helpers.leftovers import assert_nothing_left, wait_until
from tests.helpers.pictures import data_url, encode, random_picture
from tests.helpers.tiny_vision_models import VISION_ARCHITECTURES
from tests.helpers.vision_reference import VisionReference

pytestmark = pytest.mark.process

PICTURES = [random_picture(70, 40, 1), random_picture(30, 60, 2), random_picture(16, 16, 3)]
SIDES = {"qwen2_vl": 45, "qwen2_5_vl": 45, "llava-segformer": 128}
"""Longer side of the pictures that tiny models make use of; 32 for the others."""
OPTIONS: dict[str, Any] = {
    "dtype": "float32",
    "device": "cpu",
    "num_gpu_blocks": 200,
    "num_threads": 1,
    "show_progress": False,
}
SCORED = ks.SamplingParams(temperature=0, max_tokens=10, ignore_eos=True, logprobs=1)
GREEDY = ks.SamplingParams(temperature=0, max_tokens=10, ignore_eos=True)


def message(*parts: Any) -> list[dict[str, Any]]:
    """One user message of texts and pictures."""
    content = [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image", "image": part}
        for part in parts
    ]
    return [{"role": "user", "content": content}]


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> VisionReference:
    return VisionReference("llava", tmp_path_factory.mktemp("llava"))


@pytest.fixture(scope="module")
def llm(reference, tmp_path_factory) -> Iterator[ks.LLM]:
    folder = tmp_path_factory.mktemp("rt")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELSERVE_RUNTIME_DIR", str(folder))
        with ks.LLM(str(reference.folder), **OPTIONS) as llm:
            yield llm
        assert_nothing_left(folder, timeout=8)


def ids(outputs: list[ks.RequestOutput]) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in outputs]


def scores(output: ks.RequestOutput) -> list[float]:
    """The log-probabilities of the sampled tokens, which tell more than the tokens."""
    answer = output.outputs[0]
    pairs = zip(answer.token_ids, answer.logprobs or [], strict=True)
    return [logprobs[token_id].logprob for token_id, logprobs in pairs]


@pytest.mark.parametrize("arch", VISION_ARCHITECTURES)
def test_a_chat_with_pictures_equals_transformers(arch, tmp_path, runtime_folder):
    reference = VisionReference(arch, tmp_path)
    with ks.LLM(str(reference.folder), **OPTIONS | {"name": arch}) as llm:
        processor = llm._handle.open().input_processor._image_prompts._images._processor  # type: ignore[union-attr]
        wait_until(lambda: processor.pid is not None, "it starts only with an image", timeout=20)
        assert llm.engine.image_side == SIDES.get(arch, 32)
        chat = message(PICTURES[0], "\nwhat is in the", PICTURES[1])
        [output] = llm.chat(chat, SCORED, use_tqdm=False)
        assert output.prompt is not None
        assert output.outputs[0].token_ids == reference.answer(output.prompt, PICTURES[:2], 10)
        chat = message(PICTURES[2], "\nwhat is in the", PICTURES[1])
        [other] = llm.chat(chat, SCORED, use_tqdm=False)
        assert scores(other) != scores(output)
        [alone] = llm.chat(message(PICTURES[0], "what?"), GREEDY, use_tqdm=False)
        assert alone.prompt is not None
        assert alone.outputs[0].token_ids == reference.answer(alone.prompt, PICTURES[:1], 10)


def test_a_mixed_batch_equals_the_single_prompts(llm, reference):
    cases = [
        ("the <image> in", PICTURES[:1]),
        ("nothing", []),
        ("<image><image> a<image>", PICTURES),
        ("<image>on <image>", [PICTURES[2], PICTURES[2]]),
    ]
    prompts = [
        {"prompt": text, "multi_modal_data": {"image": list(images)}} for text, images in cases
    ]
    outputs = llm.generate(prompts * 2, GREEDY, use_tqdm=False)
    expected = [reference.answer(text, list(images), 10) for text, images in cases]
    assert ids(outputs) == expected * 2


def test_every_route_of_a_picture_gives_the_same_answer(llm, tmp_path):
    data = encode(PICTURES[0])
    path = tmp_path / "picture.png"
    path.write_bytes(data)
    url = {"type": "image_url", "image_url": {"url": data_url(data)}}
    parts: list[Any] = [
        url,
        *({"type": "image", "image": one} for one in (PICTURES[0], data, path, str(path))),
    ]
    text = {"type": "text", "text": "what?"}
    chats = [[{"role": "user", "content": [part, text]}] for part in parts]
    answers = ids(llm.chat(chats, GREEDY, use_tqdm=False))
    assert answers == answers[:1] * 5


def test_the_same_picture_twice_is_one_encode_and_a_prefix_hit(llm):
    picture = random_picture(40, 40, 77)
    llm.reset_prefix_cache()
    first_step = llm.stats().num_steps
    [first] = llm.chat(message(picture, "what is this in the picture?"), GREEDY, use_tqdm=False)
    [second] = llm.chat(message(picture, "what is this in the picture?"), GREEDY, use_tqdm=False)
    assert len(encoded_since(llm, first_step)) == 1
    assert second.num_cached_tokens is not None
    assert second.num_cached_tokens >= 16
    assert first.outputs[0].token_ids == second.outputs[0].token_ids


def test_the_encoder_cache_can_be_reset(llm):
    chat = message(random_picture(40, 40, 76), "the")
    first_step = llm.stats().num_steps
    answers = ids(llm.chat(chat, GREEDY, use_tqdm=False))
    assert llm.reset_encoder_cache() is True
    assert llm.stats().encoder_cache_cached == 0
    assert llm.reset_prefix_cache() is True
    for _ in range(2):
        answers += ids(llm.chat(chat, GREEDY, use_tqdm=False))
    assert answers == answers[:1] * 3
    assert len(encoded_since(llm, first_step)) == 2


def encoded_since(llm: ks.LLM, first_step: int) -> list[str]:
    return [e.mm_hash for record in llm.step_records(first_step) for e in record.encoder_inputs]


def test_another_picture_and_another_users_share_nothing(llm):
    """T53, D8: neither a block of the KV cache nor an embedding, not even the time that it takes."""
    values = np.asarray(random_picture(30, 150, 79))
    question = "what is this in the picture?"
    llm.chat(message(values, question), GREEDY, use_tqdm=False)
    others: list[tuple[Any, str | None]] = [
        (values.reshape(30, 150, 3), None),  # the same bytes
        (random_picture(30, 150, 80), None),
        (values, "other"),
        (values, "yet another"),
    ]
    for picture, salt in others:
        first_step = llm.stats().num_steps
        [output] = llm.chat(message(picture, question), GREEDY, use_tqdm=False, cache_salt=salt)
        assert output.num_cached_tokens == 0
        assert len(encoded_since(llm, first_step)) == 1
        [again] = llm.chat(message(picture, question), GREEDY, use_tqdm=False, cache_salt=salt)
        assert again.num_cached_tokens
        assert len(encoded_since(llm, first_step)) == 1


def test_each_request_tells_what_its_pictures_cost(llm):
    picture, other = random_picture(40, 40, 81), random_picture(40, 40, 82)

    def costs(*parts: Any, **changes: Any) -> tuple[int, int, int]:
        [output] = llm.chat(message(*parts), GREEDY.clone(**changes), use_tqdm=False)
        metrics = output.metrics
        assert (metrics.encode_time is not None) == (metrics.num_encoded_images > 0)
        assert (metrics.encode_time or 0) <= metrics.e2e_latency
        return metrics.num_image_tokens, metrics.num_encoded_images, metrics.num_encoder_hits

    assert costs("one", picture) == (16, 1, 0)
    assert costs("two", picture, other) == (32, 1, 1)
    assert costs("three", picture, n=3, temperature=1.0) == (16, 0, 1)  # then a prefix
    assert costs("none") == (0, 0, 0)


def resident_bytes(llm: ks.LLM) -> int:
    """Of this process, the engine and the image processor."""
    images = llm._handle.open().input_processor._image_prompts._images  # type: ignore[union-attr]
    pids = (os.getpid(), llm.engine.pid, images._processor.pid)
    return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids) * 4096


def test_t59_bad_pictures_are_their_senders_errors_alone(llm, tmp_path):
    """In a batch of good ones that go on meanwhile, again and again, and no memory stays behind."""
    bad = bad_sources(tmp_path)
    assert len(bad) > 70
    chats = [message(picture, "what?") for picture in PICTURES]
    long = GREEDY.clone(max_tokens=100)
    expected = ids(llm.chat(chats, long, use_tqdm=False))
    used = []
    for _ in range(3):
        good = [llm.submit(llm.render_chat(chat), long) for chat in chats]
        for name, source in bad.items():
            chat = message(PICTURES[0], PICTURES[1], "what?")
            chat[0]["content"][1]["image"] = source
            with pytest.raises(ks.InvalidRequestError) as caught:
                llm.submit(llm.render_chat(chat), GREEDY)
            assert re.fullmatch("image 2 of 2: .{10,400}", str(caught.value)), name
        for pending, answer in zip(good, expected, strict=True):
            pending.done.result(60)
            output = pending.take()
            assert output is not None
            assert output.outputs[0].token_ids == answer
        used.append(resident_bytes(llm))
    assert max(used[1:]) - used[0] < 8 * 2**20, used


def test_bad_pictures_in_a_list_of_chats_are_errors_of_their_own(llm, tmp_path):
    """B9, T59: the same in one call: an answer for each good one, an error for each bad one."""
    bad = bad_sources(tmp_path)
    good = [message(picture, "what?") for picture in PICTURES]
    expected = ids(llm.chat(good, GREEDY, use_tqdm=False))
    parts = [{"type": "image", "image": source} for source in bad.values()]
    parts.append({"type": "image"})  # refused before there is a prompt
    chats = [good[0], *([{"role": "user", "content": [part]}] for part in parts), *good[1:]]
    with pytest.raises(
        ks.BatchError, match=f"{len(parts)} of {len(chats)} requests fail"
    ) as caught:
        llm.chat(chats, GREEDY, use_tqdm=False)
    answers = {i: output for i, output in enumerate(caught.value.outputs) if output is not None}
    assert list(answers) == [0, len(parts) + 1, len(parts) + 2]
    assert ids(list(answers.values())) == expected
    assert list(caught.value.errors) == list(range(1, len(parts) + 1))
    for error in [caught.value, *caught.value.errors.values()]:
        assert re.fullmatch(".{10,500}", str(error))


def test_t55_text_that_looks_like_an_image_is_text(llm):
    [output] = llm.chat(message("what is <image>?"), GREEDY, use_tqdm=False)
    assert 280 not in output.prompt_token_ids
    [output] = llm.generate("what is <image>?", GREEDY, use_tqdm=False)
    assert 280 not in output.prompt_token_ids
    with pytest.raises(ks.InvalidRequestError, match="places for images"):
        llm.generate(
            {"prompt": "no place", "multi_modal_data": {"image": PICTURES[0]}}, use_tqdm=False
        )


def test_t56_a_prompt_of_too_many_pictures_is_refused_with_numbers(llm):
    with pytest.raises(ks.InvalidRequestError, match="max_model_len is 256"):
        llm.chat(message(*PICTURES * 10, "what?"), GREEDY, use_tqdm=False)
    before = llm.stats()
    assert (before.num_waiting_reqs, before.num_running_reqs) == (0, 0)
    assert llm.stats().num_steps == before.num_steps, "the engine is busy with nothing"


def test_several_answers_share_their_picture(llm, reference):
    prompt = {"prompt": "<image>the", "multi_modal_data": {"image": PICTURES[0]}}
    [output] = llm.generate(prompt, GREEDY.clone(n=3, temperature=1.0, top_k=1), use_tqdm=False)
    expected = reference.answer("<image>the", PICTURES[:1], 10)
    assert [answer.token_ids for answer in output.outputs] == [expected] * 3


def test_an_event_loop_goes_on_while_pictures_are_processed(llm, reference):
    large = random_picture(4000, 4000, 5)
    options = {key: value for key, value in OPTIONS.items() if key != "show_progress"}

    async def main() -> tuple[list[int], int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.01)

        ticker = asyncio.create_task(tick())
        async with ks.AsyncLLM(str(reference.folder), **options) as engine:
            ticks = 0
            final = [o async for o in engine.chat(message(large, "the"), GREEDY)][-1]
        ticker.cancel()
        return final.outputs[0].token_ids, ticks

    answer, ticks = asyncio.run(main())
    [expected] = ids(llm.chat(message(large, "the"), GREEDY, use_tqdm=False))
    assert answer == expected
    assert ticks >= 10


def test_a_mirrored_cache_never_changes_an_answer(reference, runtime_folder, monkeypatch):
    mirrored = {"mm_processor_cache_type": "lru", "mm_processor_cache_bytes": 8000}
    options = OPTIONS | mirrored | {"name": "mirrored"}  # beside the engine of the other tests
    with ks.LLM(str(reference.folder), **options) as llm:
        assert llm.engine.mm_cache_bytes == 8000  # two pictures of 3 KiB
        chats = [message(PICTURES[i], "the") for i in (0, 0, 1, 2, 0, 1, 1)]
        answers = ids(llm.chat(chats, GREEDY, use_tqdm=False))
        sender: Any = llm._handle.open()._core._images  # type: ignore[union-attr]
        assert not sender._shortened
        # The client is wrong about what the engine has: it is asked, and sends again.
        recall = Mock(wraps=sender.recall)
        monkeypatch.setattr(sender, "recall", recall)
        for picture in PICTURES:
            request = llm._handle.process(
                llm._handle.open(), llm.render_chat(message(picture)), GREEDY
            )
            sender._mirror.put(request.requests[0].mm_features[0].mm_hash, 10, True)
        assert ids(llm.chat(chats, GREEDY, use_tqdm=False)) == answers
        assert recall.call_count
        assert not sender._shortened
    expected = {
        i: reference.answer(
            "<|im_start|>user\n<image>the<|im_end|>\n<|im_start|>assistant\n", [PICTURES[i]], 10
        )
        for i in range(3)
    }
    assert answers == [expected[i] for i in (0, 0, 1, 2, 0, 1, 1)]


def test_nothing_of_an_image_stays_in_the_kernel_process(llm):
    import subprocess
    import sys

    code = (
        "import sys, kernelserve as ks\n"
        f"llm = ks.LLM({str(llm.engine.config.model)!r}, dtype='float32', device='cpu', num_gpu_blocks=200,"
        " num_threads=1, show_progress=False, name='other')\n"
        "from tests.helpers.pictures import random_picture\n"
        "chat = [{'role': 'user', 'content': [{'type': 'image', 'image': random_picture()}]}]\n"
        "llm.chat(chat, ks.SamplingParams(max_tokens=2), use_tqdm=False)\n"
        "llm.close()\n"
        "print([m for m in ('torch', 'transformers', 'IPython', 'matplotlib') if m in sys.modules])\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=os.environ,
    )
    assert run.stdout.strip() == "[]", run.stderr
