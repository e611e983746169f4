"""Chat templates: the same text as transformers, and errors that stay with their sender."""

from __future__ import annotations

from typing import Any

import pytest

from kernelserve.client.chat_template import ChatTemplate
from kernelserve.errors import InvalidRequestError
from tests.helpers.tokenizers import CHAT_TEMPLATE

CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be <b>brief</b> & naïve."},
    {"role": "user", "content": "你好"},
    {"role": "assistant", "content": " An answer ", "tool_calls": None},
]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"ü": [1, 2.5, True]}}}]

TEMPLATES = {
    "plain": CHAT_TEMPLATE,
    "trim": "{% for m in messages %}\n    {{- m.content | trim }}|\n  {% endfor %}\nend\n",
    "loop controls": (
        "{% for m in messages %}{% if m.role == 'user' %}{% continue %}{% endif %}"
        "{{ m.content }}{% if loop.index == 3 %}{% break %}{% endif %}{% endfor %}"
    ),
    "json": "{{ tools | tojson }}|{{ messages | tojson(indent=2) }}|{{ documents | tojson }}",
    "generation": (
        "{% set x = 1 %}{% for m in messages %}{% generation %}{% set x = 2 %}{{ m.content }}"
        "{{ x }}{% endgeneration %}{% endfor %}{{ x }}"
    ),
    "variables": (
        "{{ bos_token }}{{ undefined_name }}{% if enable_thinking is defined %}"
        "{{ enable_thinking }}{% endif %}{{ 'tool_calls' in messages[2] }}"
    ),
    "namespace": (
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}"
        "{{ ns.n }}{{ dict(a=1) | tojson }}"
    ),
    "parts": (
        "{% for m in messages %}{% for part in m['content'] %}{{ part.text }};{% endfor %}"
        "{% endfor %}"
    ),
}


def theirs(source: str, chat: Any, **options: Any) -> str:
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    base = pytest.importorskip("transformers.tokenization_utils_base")
    messages = [{k: v for k, v in m.items() if v is not None} for m in chat]
    assert base
    [text], _ = utils.render_jinja_template([messages], chat_template=source, **options)
    return str(text)


@pytest.mark.parametrize("name", sorted(TEMPLATES))
@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_rendering_equals_transformers(name: str, add_generation_prompt: bool):
    source = TEMPLATES[name]
    variables: dict[str, Any] = {"bos_token": "<s>", "enable_thinking": False}
    chat = CHAT
    if name == "parts":
        chat = [{"role": "user", "content": [{"type": "text", "text": t} for t in ("a", "b")]}]
    ours = ChatTemplate(source).render(
        chat,
        add_generation_prompt=add_generation_prompt,
        tools=TOOLS,
        documents=[{"title": "t"}],
        variables=variables,
    )
    assert ours == theirs(
        source,
        chat,
        add_generation_prompt=add_generation_prompt,
        tools=TOOLS,
        documents=[{"title": "t"}],
        **variables,
    )


@pytest.mark.parametrize("name", ["plain", "trim", "parts"])
def test_continuing_the_last_message_equals_transformers(name):
    chat = [dict(m) for m in CHAT]
    if name == "parts":
        chat = [{"role": "user", "content": [{"type": "text", "text": t} for t in ("a", "b ")]}]
    ours = ChatTemplate(TEMPLATES[name]).render(
        chat, add_generation_prompt=False, continue_final_message=True
    )
    assert ours == theirs(TEMPLATES[name], chat, continue_final_message=True)


def test_the_date_is_there():
    text = ChatTemplate("{{ strftime_now('%Y') }}").render(CHAT, add_generation_prompt=False)
    assert text.startswith("20")


def test_text_parts_are_joined_for_templates_that_know_only_strings():
    chat = [{"role": "user", "content": [{"type": "text", "text": t} for t in ("a", "b")]}]
    text = ChatTemplate(CHAT_TEMPLATE).render(chat, add_generation_prompt=False)
    assert text == "<|im_start|>user\na\nb<|im_end|>\n"


BROKEN = {
    "raises": "{{ raise_exception('System role must come first') }}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "type": "{{ 'a' + messages }}",
    "range": "{% for i in range(10 ** 9) %}{% endfor %}",
    "zero": "{{ 1 // 0 }}",
    "sandbox": "{{ messages.__class__.__mro__ }}",
    "change": "{{ messages.append(1) }}",
}


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_t49_whatever_a_template_raises_is_an_error_of_the_request(name):
    template = ChatTemplate(BROKEN[name])
    for _ in range(3):
        with pytest.raises(InvalidRequestError, match="chat template failed"):
            template.render(CHAT, add_generation_prompt=True)


def test_t49_the_message_of_the_template_is_shown():
    with pytest.raises(InvalidRequestError, match="System role must come first"):
        ChatTemplate(BROKEN["raises"]).render(CHAT, add_generation_prompt=True)


@pytest.mark.parametrize("source", ["{% for %}", "{{ " + "(" * 5000, "{% if x %}" * 200])
def test_t49_a_template_that_does_not_compile_is_refused(source):
    with pytest.raises(InvalidRequestError, match="does not compile"):
        ChatTemplate(source)


def endless() -> list[Any]:
    nested: list[Any] = []
    nested.append({"role": "user", "content": nested})
    return nested


@pytest.mark.parametrize(
    "chat", [[], "text", ["text"], [{"content": "x"}], 5, [{"role": "user", "content": object()}]]
)
def test_bad_messages_are_refused(chat):
    with pytest.raises(InvalidRequestError):
        ChatTemplate(CHAT_TEMPLATE).render(chat, add_generation_prompt=True)


def test_t49_messages_that_contain_themselves_are_refused():
    with pytest.raises(InvalidRequestError, match="recursion"):
        ChatTemplate(CHAT_TEMPLATE).render(endless(), add_generation_prompt=True)


def test_the_messages_of_the_caller_are_not_changed():
    chat = [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
    ChatTemplate(CHAT_TEMPLATE).render(
        chat, add_generation_prompt=False, continue_final_message=True
    )
    assert chat == [{"role": "user", "content": [{"type": "text", "text": "a"}]}]


def test_continuing_excludes_a_generation_prompt():
    with pytest.raises(InvalidRequestError, match="only one of them"):
        ChatTemplate(CHAT_TEMPLATE).render(
            CHAT, add_generation_prompt=True, continue_final_message=True
        )
