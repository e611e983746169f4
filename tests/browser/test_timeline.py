"""The timeline in a real page: dragging the slider shows each step, and a closed one can be read without a kernel."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.notebook]

RUN = """import kernelserve as ks
llm = ks.LLM("fake:step_seconds=0.004", fake_model=True, show_progress=False, name="timeline",
    num_gpu_blocks=40, block_size=8, max_num_batched_tokens=48, max_num_seqs=4)
params = ks.SamplingParams(max_tokens=40, detokenize=False, ignore_eos=True)
prompts = [[20 + i] * n for i, n in enumerate((90, 30, 60, 120, 20, 75))]
llm.generate(prompts, params, use_tqdm=False);"""
SHOW = """from kernelserve_widgets.timeline import Timeline
timeline = Timeline.of(llm)
timeline.show()"""


def test_the_slider_shows_each_step(lab, open_notebook):
    name = open_notebook(RUN, SHOW, "timeline.show()", "timeline.close(); llm.close()")
    lab.run(0)
    lab.run(1)
    output = lab.output(1)
    picture = output.locator(".jp-RenderedImage img")
    expect(output).to_contain_text("decoded")
    before = picture.get_attribute("src") or ""
    box = output.locator(".noUi-base").bounding_box()
    output.locator(".noUi-handle").hover()
    lab.page.mouse.down()
    for share in range(90, 29, -1):
        lab.page.mouse.move(box["x"] + box["width"] * share / 100, box["y"] + 2)
    lab.page.mouse.up()
    shown = int(output.locator(".widget-readout").inner_text())
    expect(output).to_contain_text(f"step {shown}: budget 48", timeout=3000)
    expect(picture).not_to_have_attribute("src", before)
    output.get_by_role("button").first.click()  # the first step
    expect(output).to_contain_text("step 0: budget 48", timeout=3000)
    expect(output.locator("table")).to_contain_text("prefill")
    lab.screenshot("timeline", output)

    lab.run(2)  # the first one keeps its picture and its words
    expect(output.locator("pre")).to_contain_text("step 0: budget 48")
    expect(output.locator(".noUi-handle")).to_have_count(0)
    expect(picture).to_have_count(1)
    lab.run(3)
    lab.save()
    lab.reload(name)
    for index in (1, 2):
        lab.output(index).scroll_into_view_if_needed()
        expect(lab.output(index).locator(".jp-RenderedImage img")).to_have_count(1)
        expect(lab.output(index).locator("pre")).to_contain_text("budget 48")
    assert lab.widget_errors() == []
    lab.screenshot("timeline-closed", lab.output(1))
