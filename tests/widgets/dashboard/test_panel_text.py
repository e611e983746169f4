"""What the dashboard says in words."""

from __future__ import annotations

from kernelserve_widgets.dashboard.dashboard_numbers import DashboardNumbers
from kernelserve_widgets.dashboard.memory_numbers import MemoryNumbers
from kernelserve_widgets.dashboard.panel_html import as_html
from kernelserve_widgets.dashboard.panel_text import as_text, tiles
from kernelserve_widgets.dashboard.request_row import RequestRow
from kernelserve_widgets.dashboard.units import duration, memory, percent, rate
from kernelserve_widgets.drawing.theme import THEMES

NUMBERS = DashboardNumbers(
    num_running=2, num_waiting=3, num_total_blocks=200, num_used_blocks=50, num_cached_blocks=30,
    num_free_blocks=120, hit_rate=0.64, throughput=123.4, first_token_latency=0.084, token_latency=0.0123,
    slow_token_latency=0.02, steps=[411, 412], prefill=[0, 384], decode=[3, 3], budget=[512, 512],
    memory=MemoryNumbers(270 << 20, 96 << 20, 24 << 20, 812 << 20, None),
    rows=[RequestRow("r7", (1, 2, 3), "prefill", "384 of 1,024 tokens computed", 0.1, 0.375)],
)  # fmt: skip


def test_the_text_holds_every_figure():
    text = as_text(NUMBERS, "engine")
    for part in (
        "engine", "123 tok/s", "84 ms", "12 ms", "95 %: 20 ms", "64 %", "25 %", "50 of 200 blocks",
        "24 MB of 96 MB used", "30 cached · 120 empty", "270 MB", "812 MB", "3 waiting",
        "Last step 412: 3 decode and 384 prefill tokens of a budget of 512", "384 of 1,024 tokens computed",
    ):  # fmt: skip
        assert part in text
    assert "No request yet." in as_text(DashboardNumbers(), "engine")


def test_tiles_show_dashes_for_what_is_not_known():
    values = {tile.caption: tile.value for tile in tiles(DashboardNumbers())}
    assert values["First token"] == values["Prefix cache"] == values["KV cache"] == "\N{EN DASH}"
    assert values["Throughput"] == "0 tok/s"


def test_c19_labels_and_titles_are_never_html():
    evil = "<img src=x onerror=alert(1)>"
    numbers = DashboardNumbers(
        rows=[RequestRow(evil, (1, 2, 3), "waiting", evil), RequestRow("", (1, 2, 3), "", evil)]
    )
    html = as_html(numbers, evil, THEMES["light"], 900)
    assert "<img" not in html
    assert html.count("&lt;img") == 4
    assert "<script" not in html


def test_html_shows_the_same_figures_as_the_text():
    html = as_html(NUMBERS, "engine", THEMES["dark"], 900)
    for part in (
        "123 tok/s",
        "84 ms",
        "64 %",
        "384 of 1,024 tokens computed",
        "24 MB of 96 MB used",
    ):
        assert part in html
    assert "#010203 37.5%" in html


def test_units():
    assert [duration(s) for s in (0.0004, 0.0123, 0.5, 1.25, 80.4)] == [
        "0.4 ms", "12 ms", "500 ms", "1.25 s", "80 s",
    ]  # fmt: skip
    assert [memory(n) for n in (0, 2048, 257 << 20, 3 << 29)] == [
        "0 kB",
        "2 kB",
        "257 MB",
        "1.5 GB",
    ]
    assert [percent(x) for x in (0.0, 0.004, 0.5)] == ["0 %", "0.4 %", "50 %"]
    assert [rate(x) for x in (0.0, 12.34, 1240.4)] == ["0", "12.3", "1,240"]
