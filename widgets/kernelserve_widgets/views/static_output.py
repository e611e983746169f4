"""The output that stays in the notebook when an answer has ended, readable without a kernel."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kernelserve.outputs import CompletionOutput
from kernelserve_widgets.views.cell_display import MimeBundle
from kernelserve_widgets.views.markdown_fences import fenced, single_fenced_block
from kernelserve_widgets.views.markdown_links import literal
from kernelserve_widgets.views.markdown_text import safe_markdown

if TYPE_CHECKING:
    from kernelserve_widgets.result import Result

__all__ = ["ending_note", "static_bundle"]

_MAX_ERROR_CHARS = 200


def static_bundle(result: Result, *, show_tokens: bool = False) -> MimeBundle:
    """Return (data, metadata) of the output that is saved. The text of the model is in it once, and never live.

    The format is the result's: `text` is the exact text, `markdown` is rendered without any HTML, image or script,
    `code` is one block, `json` the parsed value and, for readers that show no JSON, the text beside it. With
    `show_tokens` and log-probabilities it is the text with each token shaded by its probability.
    """
    metadata = {"kernelserve": _facts(result)}
    if show_tokens and any(output.logprobs for output in result.outputs):
        from kernelserve_widgets.views.token_html import token_html

        return {"text/html": token_html(result.outputs, ending_note(result))}, metadata
    match result.format:
        case "markdown":
            shown = _joined([safe_markdown(text) for text in result.texts], heading="**[{}]**")
            return {"text/markdown": _with_note(shown, result, markdown=True)}, metadata
        case "code":
            shown = _joined([_code_block(text) for text in result.texts], heading="**[{}]**")
            return {"text/markdown": _with_note(shown, result, markdown=True)}, metadata
        case "json":
            return _json_data(result), metadata
    return {"text/plain": _with_note(_joined(result.texts), result)}, metadata


def ending_note(result: Result) -> str:
    """Say how the answer ended if it was not by itself: a last line in brackets; else nothing."""
    tokens = result.usage.num_generated_tokens
    count = f"{tokens:,} token{'' if tokens == 1 else 's'}"
    if result.error is not None:
        reason = (str(result.error).strip().splitlines() or [type(result.error).__name__])[0]
        if len(reason) > _MAX_ERROR_CHARS:
            reason = f"{reason[:_MAX_ERROR_CHARS]}…"
        return f"[failed after {count}: {reason}]"
    reasons = {output.finish_reason for output in result.outputs}
    if "error" in reasons:
        return f"[failed after {count}]"
    return f"[stopped after {count}]" if "abort" in reasons else ""


def _joined(texts: list[str], heading: str = "[{}]") -> str:
    """One answer as it is; several with a heading each."""
    if len(texts) == 1:
        return texts[0]
    gap = "\n" if heading == "[{}]" else "\n\n"
    return "\n\n".join(f"{heading.format(i)}{gap}{text}" for i, text in enumerate(texts))


def _with_note(shown: str, result: Result, *, markdown: bool = False) -> str:
    note = ending_note(result)
    if not note:
        return shown
    if markdown:
        return f"{shown}\n\n*{literal(note)}*" if shown else f"*{literal(note)}*"
    return f"{shown}\n{note}" if shown else note


def _code_block(text: str) -> str:
    block = single_fenced_block(text)
    return fenced(*block) if block is not None else fenced(text.strip("\n"))


def _json_data(result: Result) -> dict[str, Any]:
    plain = _with_note(_joined(result.texts), result)
    try:
        values = [json.loads(text, parse_constant=_refuse_constant) for text in result.texts]
        json.dumps(values, allow_nan=False, ensure_ascii=False).encode()  # what a kernel can send
    except (ValueError, RecursionError) as error:
        return {"text/plain": f"{plain}\n[not valid JSON: {error}]"}
    value = values[0] if len(values) == 1 else values
    if not isinstance(value, dict | list):  # front ends show only objects and lists as JSON
        return {"text/plain": plain}
    return {"application/json": value, "text/plain": plain}


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _facts(result: Result) -> dict[str, Any]:
    usage, timings = result.usage, result.timings
    facts: dict[str, Any] = {
        "request_id": result.request_id,
        "model": result.model,
        "finish_reason": _reasons(result.outputs),
        "prompt_tokens": usage.num_prompt_tokens,
        "cached_tokens": usage.num_cached_tokens,
        "image_tokens": usage.num_image_tokens or None,
        "generated_tokens": usage.num_generated_tokens,
        "seconds": _rounded(timings.seconds),
        "time_to_first_token": _rounded(timings.time_to_first_token),
        "tokens_per_second": _rounded(timings.tokens_per_second),
        "encode_seconds": _rounded(timings.encode_time),
        "seed": result.params.seed,
        "temperature": result.params.temperature,
        "max_tokens": result.params.max_tokens,
    }
    if result.chat is not None:
        facts["chat"] = result.chat
    return {name: value for name, value in facts.items() if value is not None}


def _reasons(outputs: list[CompletionOutput]) -> str | list[str | None] | None:
    reasons = [output.finish_reason for output in outputs]
    return reasons[0] if len(reasons) == 1 else reasons


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
