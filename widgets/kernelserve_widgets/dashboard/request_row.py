"""One request as the dashboard lists it."""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from kernelserve_widgets.dashboard.units import duration, rate
from kernelserve_widgets.history.request_life import RequestLife
from kernelserve_widgets.history.request_names import RequestNames
from kernelserve_widgets.history.step_words import count_of

__all__ = ["MAX_ROWS", "RequestRow", "list_requests"]

MAX_ROWS = 8
_MIN_WAITING_ROWS = 3
_RATE_TOKENS = 16


class RequestRow(NamedTuple):
    """A line about a request, or about all those that have no line of their own (then `label` is empty)."""

    label: str
    colour: tuple[int, int, int]
    """Red, green, blue in 0..255."""
    state: str
    text: str
    """Its progress, or why it waits."""
    cached: float = 0.0
    """Share of its known tokens that came from the prefix cache."""
    computed: float = 0.0
    """Share of its known tokens that are computed, the cached ones included."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will come."""
        return self.state in ("finished", "aborted")

    @classmethod
    def of(cls, life: RequestLife, names: RequestNames) -> RequestRow:
        """Describe a request as it is now."""
        known = max(1, life.num_known_tokens)
        cached = 0 if life.has_ended or not life.is_running else life.num_cached_tokens
        return cls(
            label=life.label,
            colour=names.colour(life.request_id),
            state=life.state,
            text=_describe(life),
            cached=min(1.0, cached / known),
            computed=min(1.0, life.num_computed_tokens / known),
        )


def list_requests(
    live: list[RequestLife], ended: list[RequestLife], names: RequestNames
) -> list[RequestRow]:
    """Return up to eight lines: running ones, the first that wait, how many more there are, the last ended ones."""
    running = [life for life in live if life.is_running]
    waiting = [life for life in live if not life.is_running]
    room = MAX_ROWS - (1 if len(live) > MAX_ROWS else 0)
    num_running = min(len(running), room - min(len(waiting), _MIN_WAITING_ROWS))
    num_waiting = min(len(waiting), room - num_running)
    rows = [RequestRow.of(life, names) for life in running[:num_running] + waiting[:num_waiting]]
    if len(live) > MAX_ROWS:
        more = [
            f"{count:,} more {verb}"
            for count, verb in (
                (len(running) - num_running, "running"),
                (len(waiting) - num_waiting, "waiting"),
            )
            if count
        ]
        rows.append(RequestRow("", (128, 128, 128), "", " and ".join(more)))
    rows += [RequestRow.of(life, names) for life in ended[: MAX_ROWS - len(rows)]]
    return rows


def _describe(life: RequestLife) -> str:
    match life.state:
        case "waiting" | "preempted":
            return life.waiting_reason or "is next"
        case "prefill":
            again = " again" if life.num_preemptions else ""
            cached = f", {life.num_cached_tokens:,} cached" if life.num_cached_tokens else ""
            reason = f" · {life.waiting_reason}" if life.waiting_reason else ""
            total = f"{life.num_known_tokens:,}" if life.num_prompt_tokens else "?"
            done = f"{life.num_computed_tokens:,} of {total} tokens computed"
            return f"{done}{again}{cached}{_images(life)}{reason}"
        case "decode":
            reason = f" · {life.waiting_reason}" if life.waiting_reason else ""
            speed = _tokens_per_second(life)
            return f"{_tokens(life)}{f' · {rate(speed)} tok/s' if speed else ''}{_images(life)}{reason}"
        case "finished" | "aborted":
            return f"{_tokens(life)}{_first_token(life)}{_images(life)}"


def _tokens(life: RequestLife) -> str:
    count = life.num_generated_tokens
    return f"{count:,} token" if count == 1 else f"{count:,} tokens"


def _images(life: RequestLife) -> str:
    encoded, found = life.num_encoded_images, life.num_found_images
    if encoded and found:
        return f" · {count_of(encoded, 'image')} encoded, {found:,} found"
    if not (count := encoded or found):
        return ""
    images = "image" if count == 1 else f"{count:,} images"
    return f" · {images} {'encoded' if encoded else 'found'}"


def _first_token(life: RequestLife) -> str:
    if life.first_token_at is None or life.spans[0].kind != "queued":
        return ""
    return f" · first after {duration(life.first_token_at - life.queued_at)}"


def _tokens_per_second(life: RequestLife) -> float:
    times = list(islice(reversed(life.token_times), _RATE_TOKENS))
    return (
        (len(times) - 1) / (times[0] - times[-1])
        if len(times) > 1 and times[0] > times[-1]
        else 0.0
    )
