"""What is saved with the notebook, by format."""

from __future__ import annotations

import json
from typing import Any

import nbformat
import pytest
from nbconvert import HTMLExporter, MarkdownExporter

from kernelserve.outputs import RequestMetrics
from kernelserve_widgets.views.static_output import ending_note, static_bundle
from tests.helpers.answers import delta, made_result, position, token_delta

HOSTILE = "<img src=x onerror=alert(1)> <script>alert(1)</script> [a](javascript:alert(1)) <b"


def notebook_of(data: dict[str, Any], metadata: dict[str, Any]) -> nbformat.NotebookNode:
    cell = nbformat.v4.new_code_cell("%%generate\nx")
    cell.outputs = [nbformat.v4.new_output("display_data", data, metadata=metadata)]
    notebook = nbformat.v4.new_notebook(cells=[cell])
    nbformat.validate(notebook)
    return notebook


def test_b8_text_is_kept_to_the_character() -> None:
    text = "  # leading\n\n\ttab <b>&amp;</b> `x`  \n\n"
    data, _ = static_bundle(made_result(text))
    assert data == {"text/plain": text}


def test_several_answers_have_headings() -> None:
    data, metadata = static_bundle(made_result("one", "two\n"))
    assert data == {"text/plain": "[0]\none\n\n[1]\ntwo\n"}
    assert metadata["kernelserve"]["finish_reason"] == ["stop", "stop"]


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        ({"num_encoded_images": 1, "encode_time": 0.251}, "16 image tokens encoded in 0.25 s"),
        ({"num_encoder_hits": 1}, "16 image tokens from the encoder cache"),
        ({}, "16 image tokens"),  # in a cached prefix
    ],
)
def test_what_pictures_cost_is_told(cost: dict[str, Any], words: str) -> None:
    result = made_result("")
    result.merge(delta("ab", metrics=RequestMetrics(num_image_tokens=16, **cost)))
    assert result.summary().endswith(f" · {words}")
    facts = static_bundle(result)[1]["kernelserve"]
    assert (facts["image_tokens"], facts.get("encode_seconds")) == (16, cost.get("encode_time"))
    assert "image" not in made_result("ab").summary()
    assert "image_tokens" not in static_bundle(made_result("ab"))[1]["kernelserve"]


@pytest.mark.parametrize("format", ["text", "markdown", "code", "json"])
def test_c19_nothing_is_live_in_any_format_and_every_reader_shows_it(format: str) -> None:
    data, metadata = static_bundle(made_result(HOSTILE, format=format))
    assert "text/html" not in data
    notebook = notebook_of(data, metadata)
    exported, _ = HTMLExporter(template_name="basic").from_notebook_node(notebook)
    assert "<img src=x" not in exported
    assert "<script>alert" not in exported
    assert 'href="javascript' not in exported
    assert "onerror=alert(1)" in exported
    assert "onerror=alert(1)" in MarkdownExporter().from_notebook_node(notebook)[0]


def test_b8_code_is_one_block_with_comments_that_are_no_headings() -> None:
    data, _ = static_bundle(made_result("# comment\nprint('```')\n", format="code"))
    assert data == {"text/markdown": "````\n# comment\nprint('```')\n````"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("```python\nx < 1\n```", "```python\nx < 1\n```"),
        ("\n~~~js\n```\n~~~\n\n", "````js\n```\n````"),
        ("```python\nnever closed", "```python\nnever closed\n```"),
        ("Here:\n```python\nx\n```", "````\nHere:\n```python\nx\n```\n````"),
        ("```a\nx\n```\n```b\ny\n```", "````\n```a\nx\n```\n```b\ny\n```\n````"),
    ],
)
def test_a_fenced_answer_is_not_fenced_twice(text: str, shown: str) -> None:
    assert static_bundle(made_result(text, format="code"))[0] == {"text/markdown": shown}


def test_json_is_shown_parsed_and_readable_where_json_is_not() -> None:
    data, _ = static_bundle(made_result('{"a": [1, null]}', format="json"))
    assert data == {"application/json": {"a": [1, None]}, "text/plain": '{"a": [1, null]}'}
    two, _ = static_bundle(made_result('{"a": 1}', "[2]", format="json"))
    assert two["application/json"] == [{"a": 1}, [2]]
    assert static_bundle(made_result("3", format="json"))[0] == {"text/plain": "3"}


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{"a": 1', "line 1 column 8"),
        ('{"a":\n NaN}', "NaN is no JSON number"),
        ("[1e999]", "not JSON compliant"),
        ('["\\ud800"]', "surrogates not allowed"),
        ("[" * 100_000, "recursion"),
        ("", "line 1 column 1"),
    ],
)
def test_what_is_no_json_is_text_with_the_reason(text: str, where: str) -> None:
    data, _ = static_bundle(made_result(text, format="json"))
    assert list(data) == ["text/plain"]
    *_, last = data["text/plain"].splitlines()
    assert data["text/plain"].startswith(text)
    assert last.startswith("[not valid JSON: ")
    assert where in last


@pytest.mark.parametrize(
    ("format", "mime", "end"),
    [
        ("text", "text/plain", "ab\n[stopped after 2 tokens]"),
        ("markdown", "text/markdown", "ab\n\n*&#91;stopped after 2 tokens&#93;*"),
        ("code", "text/markdown", "```\nab\n```\n\n*&#91;stopped after 2 tokens&#93;*"),
    ],
)
def test_a_stopped_answer_says_so_in_its_last_line(format: str, mime: str, end: str) -> None:
    result = made_result("ab", reason="abort", format=format)
    assert static_bundle(result)[0] == {mime: end}
    assert result.text == "ab"


def test_an_answer_that_ended_by_itself_says_nothing() -> None:
    assert ending_note(made_result("a", reason="length")) == ""


def test_an_error_is_named_in_one_short_line() -> None:
    result = made_result("a", reason="error")
    result.error = RuntimeError("x" * 500 + "\nmore")
    note = ending_note(result)
    assert note.startswith("[failed after 1 token: xxx")
    assert len(note) < 250
    result.error = ValueError()
    assert ending_note(result) == "[failed after 1 token: ValueError]"


def test_the_metadata_is_plain_and_small() -> None:
    result = made_result("text")
    result.timings.seconds, result.timings.tokens_per_second = 1.23456, 9.87654
    _, metadata = static_bundle(result)
    facts = metadata["kernelserve"]
    assert json.loads(json.dumps(metadata, allow_nan=False)) == metadata
    assert len(json.dumps(metadata)) < 600
    assert (facts["seconds"], facts["tokens_per_second"]) == (1.235, 9.877)
    assert (facts["prompt_tokens"], facts["generated_tokens"]) == (2, 4)
    assert (facts["model"], facts["finish_reason"]) == ("model", "stop")


def test_the_token_view_has_the_text_once_with_what_else_could_have_come() -> None:
    result = made_result("")
    result.merge(token_delta([position("<b>", 0.25, **{"'\"&": 0.5}), position(" x\n", 1.0)]))
    data, _ = static_bundle(result, show_tokens=True)
    assert list(data) == ["text/html"]
    shown = data["text/html"]
    assert "<b>" not in shown
    assert "rgba(230, 120, 0, 0.45)" in shown
    assert 'title="25.0% chosen\n50.0% &#x27;\\&#x27;&quot;&amp;&#x27;\n' in shown
    assert shown.count("&lt;b&gt;</span>") == 1
    assert static_bundle(result)[0] == {"text/plain": "<b> x\n"}
