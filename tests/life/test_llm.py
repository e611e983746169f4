"""LLM from a plain script: batches, streams, refusals."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import kernelserve as ks
from kernelserve.errors import EngineConfigError
from kernelserve.executor.fake import fake_next_token
from tests.helpers.tokenizers import make_byte_level, save
from tests.life.test_async_llm import expected

pytestmark = pytest.mark.process


@pytest.fixture
def llm(runtime_folder):
    with ks.LLM("fake", fake_model=True, show_progress=False) as llm:
        yield llm


def params(max_tokens: int = 5, **options) -> ks.SamplingParams:
    return ks.SamplingParams(max_tokens=max_tokens, detokenize=False, **options)


def test_outputs_are_in_the_order_of_the_prompts(llm):
    prompts = [[i + 1, 3] for i in range(40)]
    lengths = [3 + i % 7 for i in range(40)]
    outputs = llm.generate(prompts, [params(length) for length in lengths], use_tqdm=False)
    for prompt, length, output in zip(prompts, lengths, outputs, strict=True):
        assert output.finished
        assert output.outputs[0].token_ids == expected(prompt, length)


def test_trap_32_the_callers_params_are_not_changed(llm):
    mine = params(output_kind=ks.RequestOutputKind.DELTA)
    llm.generate([1, 2], mine, use_tqdm=False)
    assert mine.output_kind is ks.RequestOutputKind.DELTA


def test_one_bad_prompt_of_a_list_is_an_error_and_the_others_are_answered(llm):
    prompts = [[1, 2], [1_000_000], [5, 6]]
    with pytest.raises(
        ks.BatchError, match=r"1 of 3 requests failed, at index 1: .*1000000"
    ) as caught:
        llm.generate(prompts, params(), use_tqdm=False)
    first, bad, last = caught.value.outputs
    assert first
    assert last
    assert bad is None
    assert first.outputs[0].token_ids == expected([1, 2], 5)
    assert last.outputs[0].token_ids == expected([5, 6], 5)
    assert isinstance(caught.value.errors[1], ks.InvalidRequestError)
    assert isinstance(caught.value, ks.InvalidRequestError), "nothing but refusals"
    assert llm.partial_outputs == [first, last]
    with pytest.raises(ks.InvalidRequestError, match="1000000") as alone:
        llm.generate({"prompt_token_ids": [1_000_000]}, params(), use_tqdm=False)
    assert not isinstance(alone.value, ks.BatchError)
    assert llm.partial_outputs == []


def test_what_is_wrong_with_the_call_is_refused_before_anything_is_sent(llm):
    with pytest.raises(ks.InvalidRequestError, match="2 sampling_params for 3 prompts"):
        llm.generate([[1], [2], [3]], [params(), params()])
    with pytest.raises(ks.InvalidRequestError, match="must be SamplingParams") as caught:
        llm.generate([[1], [2]], [params(), {"temperature": 0}])
    assert not isinstance(caught.value, ks.BatchError)
    assert llm.stats().num_steps == 0


def test_an_empty_batch_is_no_work(llm):
    assert llm.generate([], params()) == []


def test_t16_an_empty_prompt_is_refused(llm):
    with pytest.raises(ks.InvalidRequestError, match="empty"):
        llm.generate({"prompt_token_ids": []}, params())
    assert len(llm.generate([1], params(), use_tqdm=False)) == 1


def test_threads_share_the_engine(llm):
    results: dict[int, list[int]] = {}

    def work(i: int) -> None:
        output = llm.generate([i + 1, 3], params(20), use_tqdm=False)[0]
        results[i] = output.outputs[0].token_ids

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {i: expected([i + 1, 3], 20) for i in range(8)}


def test_leaving_a_stream_aborts_it(llm):
    stream = llm.stream([1, 2], params(4000))
    stream.close()
    assert llm.generate([5, 6], params(), use_tqdm=False)[0].outputs[0].token_ids == expected(
        [5, 6], 5
    )


def test_a_closed_llm_says_so(llm):
    llm.close()
    with pytest.raises(ks.EngineDeadError, match="closed"):
        llm.generate([1], params())


def test_the_step_records_tell_what_was_done(llm):
    llm.generate([[1] * 40, [2] * 10], params(3), use_tqdm=False)
    records = llm.step_records()
    assert sum(sum(r.num_scheduled_tokens.values()) for r in records) == 40 + 10 + 2 + 2
    assert all(r.num_prefill_tokens + r.num_decode_tokens <= r.token_budget for r in records)
    assert records[-1].num_running_reqs == 0 or records[-1].finished_req_ids


def test_the_threads_of_the_engine_do_not_spin_against_the_notebook(llm):
    environment = Path(f"/proc/{llm.engine.pid}/environ").read_bytes().split(b"\0")
    assert b"GOMP_SPINCOUNT=2000" in environment


def test_params_of_another_type_are_refused_by_name(llm):
    with pytest.raises(ks.InvalidRequestError, match="must be SamplingParams"):
        llm.generate([1], {"temperature": 0})
    with pytest.raises(ks.InvalidRequestError, match="must be SamplingParams"):
        llm.stream([1], {"temperature": 0})


def test_a_setting_that_the_engine_refuses_is_a_config_error(runtime_folder):
    with pytest.raises(EngineConfigError, match="not a fake model") as caught:
        ks.LLM("fake:nonsense=1", fake_model=True, show_progress=False)
    assert isinstance(caught.value, ks.InvalidConfigError)
    assert caught.value.log_path


def test_the_list_of_engines_does_not_show_the_secret(llm):
    (engine,) = ks.list_engines()
    assert engine.token not in repr(engine)
    assert str(llm.engine.pid) in repr(engine)


def test_a_fake_model_with_a_tokenizer_reads_and_writes_text(runtime_folder, tmp_path):
    folder = save(make_byte_level(), tmp_path / "tokenizer")
    with ks.LLM(f"fake:tokenizer={folder}", fake_model=True, show_progress=False) as llm:
        tokenizer = llm.get_tokenizer()
        assert tokenizer is not None
        assert llm.engine.vocab_size == tokenizer.vocab_size < 1000
        greedy = ks.SamplingParams(temperature=0, max_tokens=40, logprobs=1)
        [output] = llm.generate("The engine", greedy, use_tqdm=False)
    ids = tokenizer.encode("The engine")
    for _ in range(40):
        ids.append(fake_next_token(ids[-1], len(ids), tokenizer.vocab_size))
    [answer] = output.outputs
    assert answer.token_ids == ids[-40:]
    assert answer.text == tokenizer.decode(ids[-40:])
    assert answer.logprobs
    assert all(token < tokenizer.vocab_size for row in answer.logprobs for token in row)


def test_a_fake_model_with_a_tokenizer_that_is_not_there(runtime_folder, tmp_path):
    with pytest.raises(EngineConfigError, match=r"there is no .*tokenizer\.json"):
        ks.LLM(f"fake:tokenizer={tmp_path}", fake_model=True, show_progress=False)
