"""%%generate in a real kernel: user-needs B1-B8, C1, C2, C9-C11, C14, C16, C18, C19 by their numbers."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.helpers.front_end import CellOutputs, FrontEnd
from tests.helpers.kernel import on_both_ipykernels
from tests.helpers.tokenizers import fake_model_that_speaks

pytestmark = [pytest.mark.notebook, pytest.mark.process]

LITERAL_BODIES = (
    '{"a": 1}', "{v:k for k,v in d.items()}", r"\frac{a}{b}", "${HOME}", "$x", "%d %s %%time", "{{x}}", "{{ y|upper }}",
    '{"type": "object", "properties": {"n": {"type": "integer"}}}', "  leading and trailing  ", "two\n\n  lines\t\n",
    "!ls", "a?", "'single' \"double\" \\n", "<|im_end|> <b>bold</b> \u00e9\u4e2d\U0001f600",
)  # fmt: skip


@pytest.fixture
def model(tmp_path: Path) -> str:
    return fake_model_that_speaks(tmp_path / "tokenizer", step_seconds=0.01)


@pytest.fixture
def notebook(shared_kernel, model) -> FrontEnd:
    """A front end whose kernel has the extension and a running engine that writes 100 tokens a second."""
    return serve(FrontEnd(shared_kernel), model)


@pytest.fixture
def new_notebook(new_kernel, model) -> FrontEnd:
    """The same in a kernel that nobody has used before."""
    return serve(FrontEnd(new_kernel()), model)


def serve(front: FrontEnd, model: str) -> FrontEnd:
    front.kernel.ok("%load_ext kernelserve")
    front.ok(f"%serve {model} --fake-model")
    return front


def wait_until_streaming(front: FrontEnd, cell: CellOutputs) -> str:
    """Return the widget of a cell after its first text has come."""
    front.wait(lambda: cell.done or (cell.widgets and has_text(front, cell.widgets[0])))
    assert not cell.done, "the text came only at the end"
    return cell.widgets[0]


def has_text(front: FrontEnd, widget: str) -> bool:
    """Whether text has come, and not only counters."""
    return any("d" in message or "a" in message for message in front.custom[widget])


def value(front: FrontEnd, expression: str):
    """Evaluate in the kernel."""
    return eval(front.ok(f"print(repr({expression}))"))


def test_b1_the_text_streams_and_stays_once(notebook: FrontEnd) -> None:
    cell = notebook.submit("%%generate -o a --max-tokens 200 --temperature 0\nHello")
    widget = wait_until_streaming(notebook, cell)
    notebook.wait(lambda: cell.done)
    text = value(notebook, "a.text")
    assert len(notebook.custom[widget]) > 3
    assert cell.widgets == [], "a live widget is left in the output"
    assert cell.text.count(text) == 1
    assert "200 tokens" in cell.text
    assert "length" in cell.text


def test_b2_the_body_reaches_the_tokenizer_byte_for_byte(notebook: FrontEnd) -> None:
    notebook.ok("x, y, HOME = 'changed', 'changed', 'changed'")
    for body in LITERAL_BODIES:
        for options in ("--raw", "", "--system Brief"):
            cell = notebook.run(f"%%generate -o a --max-tokens 1 {options}\n{body}")
            assert cell.error is None, cell.traceback
            # IPython gives every cell a final line break, so one that was typed cannot be told from it.
            sent = body.removesuffix("\n")
            prompt = value(notebook, "a.prompt")
            if options == "--raw":
                assert prompt == sent
            else:
                assert f"<|im_start|>user\n{sent}<|im_end|>\n" in prompt
    cell = notebook.run("%%generate -o a --max-tokens 1 --raw --template\n{{ x }} {y} {{ 1 + 1 }}")
    assert value(notebook, "a.prompt") == "changed {y} 2"
    cell = notebook.run("%%generate --template\nhello {{ nobody }}")
    assert cell.error is not None
    assert "'nobody' is undefined" in cell.error


def test_b2_text_of_a_user_never_becomes_a_special_token(notebook: FrontEnd) -> None:
    notebook.ok("%%generate -o a --max-tokens 1\n<|im_end|>")
    tokenizer = "get_ipython().kernelserve.llm().get_tokenizer()"
    [end] = value(notebook, f"{tokenizer}.encode('<|im_end|>', add_special_tokens=False)")
    assert value(notebook, "a.prompt_token_ids").count(end) == 1, "only the template's own"


def test_b3_the_result_is_a_value(notebook: FrontEnd) -> None:
    notebook.ok("%%generate -o a --max-tokens 5 --logprobs 2 --seed 3\nHello")
    assert value(notebook, "_ is a and Out[max(Out)] is a")
    assert value(notebook, "(a.finish_reason, len(a.token_ids), len(a.logprobs), a.usage.num_generated_tokens)") == (
        "length", 5, 5, 5,
    )  # fmt: skip
    assert value(notebook, "a.timings.seconds > 0 and a.timings.time_to_first_token > 0")
    later = notebook.run("a")
    assert value(notebook, "a.text") in later.text
    quiet = notebook.run("%%generate -o b --max-tokens 5;\nHello")
    assert len(quiet.outputs) == 1
    captured = notebook.run("%%capture cap\n%%generate -o c --max-tokens 5\nHello")
    assert captured.outputs == []
    assert value(notebook, "c.finish_reason") == "length"
    assert value(notebook, "c.text in cap.outputs[0].data['text/plain']")
    timed = notebook.run("%%time\n%%generate -o d --max-tokens 5\nHello")
    assert timed.error is None, timed.traceback
    assert "Wall time" in timed.text
    refused = notebook.run("%%generate -o 2x\nHello")
    assert "'2x' is not the name of a variable" in (refused.error or "")


def test_b3_b5_stop_and_interrupt_keep_what_there_is(notebook: FrontEnd) -> None:
    stopped = notebook.submit("%%generate -o a --max-tokens 5000\nHello")
    widget = wait_until_streaming(notebook, stopped)
    notebook.click(widget, {"kind": "stop"})
    notebook.wait(lambda: stopped.done, timeout=5)
    assert stopped.error is None
    assert value(notebook, "a.finish_reason") == "abort"
    assert value(notebook, "a.text")
    assert value(notebook, "a.text") in stopped.text
    interrupted = notebook.submit("%%generate -o b --max-tokens 5000\nHello")
    wait_until_streaming(notebook, interrupted)
    notebook.kernel.interrupt()
    notebook.wait(lambda: interrupted.done, timeout=5)
    assert (interrupted.error or "").startswith("KeyboardInterrupt: r2 was stopped after")
    assert "Traceback" not in interrupted.traceback
    assert value(notebook, "b.finish_reason") == "abort"
    assert value(notebook, "b.text") in interrupted.text
    assert notebook.ok("%%generate --max-tokens 3\nstill alive")


def test_b4_a_chat_is_carried_replaced_shown_and_reset(notebook: FrontEnd) -> None:
    for cell_id, text in (("c1", "one?"), ("c2", "two?"), ("c3", "three?")):
        notebook.run(f"%%generate -o {cell_id} --chat k --max-tokens 3\n{text}", cell_id=cell_id)
    assert value(notebook, "c3.prompt").count("<|im_start|>user") == 3
    assert value(notebook, "c2.text in c3.prompt")
    notebook.run("%%generate -o c2 --chat k --max-tokens 3\nTWO?", cell_id="c2")
    assert value(notebook, "c2.prompt").count("<|im_start|>user") == 2
    shown = notebook.ok("%chat show k")
    assert shown.count("user:") == 3
    assert "two?" not in shown
    assert "TWO?" in shown
    assert "k: 3 turns" in notebook.ok("%chat list")
    notebook.ok("%chat reset k")
    notebook.ok("%%generate -o fresh --chat k --max-tokens 3\nfour?")
    assert value(notebook, "fresh.prompt").count("<|im_start|>user") == 1
    notebook.ok("%%generate -o alone --max-tokens 3\nfive?")
    assert value(notebook, "alone.prompt").count("<|im_start|>user") == 1
    refused = notebook.run("%%generate --chat k --logprobs 100\nsix?")
    assert refused.error is not None
    assert "six?" not in notebook.ok("%chat show k"), "what could not be sent is no turn"


def test_b5_requests_are_listed_and_aborted_from_another_cell(notebook: FrontEnd) -> None:
    cells = [
        notebook.run(f"%%generate -b -o v{i} --max-tokens 5000\nnumber {i}") for i in (1, 2, 3)
    ]
    listed = notebook.ok("%requests")
    assert listed.count("running ") >= 3
    assert "'number 2'" in listed
    notebook.ok("%abort r2")
    notebook.wait(lambda: cells[1].widgets == [], timeout=5)
    assert value(notebook, "(v1.finish_reason, v2.finish_reason)") == (None, "abort")
    notebook.ok("%abort all")
    notebook.wait(lambda: not any(cell.widgets for cell in cells), timeout=5)
    assert value(notebook, "[v.finish_reason for v in (v1, v2, v3)]") == ["abort"] * 3
    unknown = notebook.run("%abort r9")
    assert "there is no request 'r9'" in (unknown.error or "")
    assert "engine: 0 running, 0 waiting" in notebook.ok("%requests")


def test_b6_errors_are_one_line_and_fail_the_cell(notebook: FrontEnd) -> None:
    wrong = notebook.run("%%generate --temprature 1\nHello")
    assert wrong.error is not None
    assert "did you mean --temperature?" in wrong.error
    assert wrong.traceback.count("\n") == 0
    pid = value(notebook, "get_ipython().kernelserve.llm().engine.pid")
    dying = notebook.submit("%%generate -o a --max-tokens 5000 --on-error return\nHello")
    wait_until_streaming(notebook, dying)
    os.kill(pid, signal.SIGKILL)
    notebook.wait(lambda: dying.done, timeout=10)
    assert dying.error is None
    assert value(notebook, "(type(a.error).__name__, a.finish_reason)") == (
        "EngineDeadError",
        "error",
    )
    assert value(notebook, "a.text") in dying.text
    again = notebook.run("%%generate --max-tokens 3\nHello")
    assert "EngineDeadError" in (again.error or "")
    assert "SIGKILL" in again.traceback
    assert "r1" in notebook.ok("import kernelserve as ks\nprint(ks.timeline().text())"), (
        "what it did can still be seen"
    )


def test_b8_c19_the_text_is_shown_as_it_is(notebook: FrontEnd) -> None:
    notebook.ok(
        "from kernelserve_widgets.result import Result\n"
        "import kernelserve as ks\n"
        "def shown(text, format='text'):\n"
        "    r = Result('x', '', [1], ks.SamplingParams(), 'm', format=format)\n"
        "    r.outputs[0].text = text; r.outputs[0].finish_reason = 'stop'; r.finish()\n"
        "    display(r)\n"
    )
    text = "  indented\n\n# not a heading\n<img src=x onerror=alert(1)><script>alert(2)</script>[a](javascript:alert(3))<b"
    plain = notebook.run(f"shown({text!r})")
    assert set(plain.outputs[0]["data"]) == {"text/plain"}
    assert plain.outputs[0]["data"]["text/plain"].startswith(text)
    for kind in ("markdown", "code"):
        marked = notebook.run(f"shown({text!r}, {kind!r})")
        assert set(marked.outputs[0]["data"]) == {"text/markdown", "text/plain"}
        assert "onerror" not in marked.outputs[0]["data"]["text/plain"]
    json_cell = notebook.run("shown('{\"a\": [1, 2]}', 'json')")
    assert json_cell.outputs[0]["data"]["application/json"] == {"a": [1, 2]}


@on_both_ipykernels
def test_c1_no_character_lands_in_a_foreign_cell(notebook: FrontEnd) -> None:
    streams = [
        notebook.submit(f"%%generate -b -o v{i} --raw --max-tokens 150\nnumber {i}") for i in (1, 2)
    ]
    printing = notebook.submit(
        "import time\nfor i in range(20):\n    print(f'<{i}>', end='', flush=True)\n    time.sleep(0.05)"
    )
    notebook.wait(lambda: printing.done)
    assert printing.text == "".join(f"<{i}>" for i in range(20))
    notebook.wait(lambda: not any(cell.widgets for cell in streams))
    for i, cell in enumerate(streams, 1):
        text = value(notebook, f"v{i}.wait().text")
        assert cell.text.count(text) == 1
        assert "<3>" not in cell.text
    assert value(notebook, "v1.text != v2.text")


def test_c2_every_character_of_an_awaiting_cell_arrives(notebook: FrontEnd) -> None:
    cell = notebook.run("%%generate -o a --max-tokens 400 --temperature 0\nHello")
    assert value(notebook, "a.text") in cell.text
    assert value(notebook, "len(a.token_ids)") == 400


@on_both_ipykernels
def test_c9_the_button_works_or_says_what_to_press(notebook: FrontEnd, ipykernel: str) -> None:
    cell = notebook.submit("%%generate -o a --max-tokens 5000\nHello")
    widget = wait_until_streaming(notebook, cell)
    hint = notebook.comms[widget]["state"]["hint"]
    began = time.monotonic()
    if ipykernel == "ipykernel7":
        assert hint == ""
        notebook.click(widget, {"kind": "stop"})
    else:
        assert "interrupt" in hint
        notebook.kernel.interrupt()
    notebook.wait(lambda: cell.done, timeout=10)
    assert cell.done_at - began < 1
    assert value(notebook, "a.finish_reason") == "abort"


@on_both_ipykernels
def test_interrupts_and_stops_end_the_cell_within_a_second_at_every_phase(
    notebook: FrontEnd, ipykernel: str
) -> None:
    delays = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.2)
    slow = "" if ipykernel == "ipykernel6" else "%%time\n"
    for i, delay in enumerate(delays):
        for nested in ("", slow):
            cell = notebook.submit(f"{nested}%%generate -o a --max-tokens 5000\nnumber {i}")
            notebook.wait_for_widget(cell)
            notebook.listen(delay)
            began = time.monotonic()
            notebook.kernel.interrupt()
            notebook.finish(cell, timeout=10)
            assert cell.done_at - began < 1, (delay, nested)
            assert "KeyboardInterrupt" in (cell.error or ""), cell.traceback
            assert cell.widgets == []
    if ipykernel == "ipykernel7":
        for delay in delays:
            cell = notebook.submit("%%generate -o a --max-tokens 5000\nHello")
            notebook.wait_for_widget(cell)
            notebook.listen(delay)
            began = time.monotonic()
            notebook.click(cell.widgets[0], {"kind": "stop"})
            notebook.finish(cell, timeout=10)
            assert cell.done_at - began < 1, delay
            assert cell.error is None, cell.traceback
    assert "0 running, 0 waiting" in notebook.ok("%requests")
    assert notebook.ok("%%generate --max-tokens 3\nstill alive")


def test_c10_the_text_is_there_after_the_front_end_was_gone(notebook: FrontEnd) -> None:
    notebook.run("%%generate -b -o a --max-tokens 300\nHello")
    later = FrontEnd(
        notebook.kernel
    )  # knows nothing of what was before, like a page that was reloaded
    joined = later.run("%last")
    later.wait(lambda: joined.widgets and has_text(later, joined.widgets[0]))
    later.wait(lambda: not joined.widgets)
    text = value(later, "a.text")
    assert len(value(later, "a.token_ids")) == 300
    assert joined.text.count(text) == 1
    assert text in later.run("%last r1").text
    assert "there is no answer 'r7'" in (later.run("%last r7").error or "")


def test_c4_c8_comms_and_what_they_hold_stay_few(new_notebook: FrontEnd) -> None:
    def state() -> tuple[int, int]:
        return len(new_notebook.comms), len(json.dumps(new_notebook.comms, default=str))

    for _ in range(10):
        new_notebook.run("%%generate --max-tokens 2\nHello")
    before = state()
    for _ in range(90):
        new_notebook.run("%%generate --max-tokens 2\nHello")
    assert state()[0] == before[0] <= 6
    assert state()[1] < before[1] + 1000
    assert value(new_notebook, "len(__import__('comm').get_comm_manager().comms)") <= before[0] + 1


@pytest.mark.parametrize("ui", ["display", "plain"])
def test_c14_c18_without_widgets_text_is_shown(new_kernel, model: str, ui: str) -> None:
    front = FrontEnd(new_kernel())
    block = "import sys; sys.modules['ipywidgets'] = sys.modules['anywidget'] = None"
    front.ok(f"{block}\n%load_ext kernelserve")
    front.ok(f"%serve {model} --fake-model")
    if ui == "plain":
        front.ok("%config KernelServeMagics.ui = 'plain'")
    cell = front.submit("%%generate -o a --max-tokens 200\nHello")
    front.wait(lambda: cell.text.strip())
    assert not cell.done
    front.wait(lambda: cell.done)
    assert cell.error is None, cell.traceback
    assert value(front, "a.text") in cell.text
    assert front.comms == {}


def test_c16_no_context_variable_outlives_a_call(notebook: FrontEnd) -> None:
    notebook.ok("import contextvars; before = set(contextvars.copy_context())")
    notebook.ok("%%generate --max-tokens 3\nHello")
    notebook.ok("%%generate -b --max-tokens 3\nHello")
    assert (
        value(notebook, "{v.name for v in contextvars.copy_context()} - {v.name for v in before}")
        == set()
    )


def test_loading_twice_and_unloading(notebook: FrontEnd) -> None:
    assert notebook.ok("%reload_ext kernelserve") == ""
    notebook.ok("%%generate -o a --max-tokens 3\nHello")
    notebook.ok("%unload_ext kernelserve")
    gone = notebook.run("%%generate\nHello")
    assert "generate" in gone.text or gone.error is not None
    assert not hasattr(notebook, "kernelserve")
    notebook.ok("%load_ext kernelserve")
    notebook.ok("%%generate -o a --max-tokens 3\nHello")


def test_options_values_and_names_are_completed(notebook: FrontEnd) -> None:
    notebook.ok("%%generate -o story --max-tokens 3 --chat geography\nHello")

    def complete(code: str) -> list[str]:
        reply = notebook.kernel.complete(code)
        return list(reply["matches"])

    assert "--temperature" in complete("%%generate --tem")
    assert complete("%%generate --format js") == ["json"]
    assert complete("%%generate --image dr") == ["drop"]
    assert complete("%%generate --image cl") == ["clipboard"]
    assert "story" in complete("%%generate -o st")
    assert complete("%%generate --chat geo") == ["geography"]
    assert "--max-model-len" in complete("%serve --max-m")
    assert "smollm2-135m-instruct" in complete("%serve smol")
    assert complete("%engine re") == ["restart"]
