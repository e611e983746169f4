"""`%%generate --template` (user-needs B2)."""

from __future__ import annotations

import pytest

from kernelserve import InvalidRequestError
from kernelserve_widgets.prompt_template import render_prompt


def test_b2_a_value_is_never_rendered_again() -> None:
    assert (
        render_prompt("{{ x }}", {"x": "{y} {{ y }} {% raw %}", "y": 1}) == "{y} {{ y }} {% raw %}"
    )


def test_only_the_template_syntax_changes() -> None:
    body = '{"a": 1} \\frac{a}{b} ${HOME} $x %d {v:k}\n\n  {{ n + 1 }}\n'
    assert render_prompt(body, {"n": 1}) == body.replace("{{ n + 1 }}", "2")


def test_a_missing_name_is_named() -> None:
    with pytest.raises(InvalidRequestError, match="'nobody' is undefined"):
        render_prompt("hello {{ nobody }}", {})


def test_a_syntax_error_says_where() -> None:
    with pytest.raises(InvalidRequestError, match="line 2 of the prompt"):
        render_prompt("fine\n{{ ( }}", {})


@pytest.mark.parametrize(
    "body",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ items.append(1) }}",
        "{{ f.__globals__ }}",
        "{{ 1 / 0 }}",
    ],
)
def test_what_a_template_may_not_do_is_an_error(body: str) -> None:
    items: list[int] = []
    with pytest.raises(InvalidRequestError, match="--template"):
        render_prompt(body, {"items": items, "f": render_prompt})
    assert items == []
