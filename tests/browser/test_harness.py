"""The browser and JupyterLab themselves, before any of our widgets: what the other tests here rely on."""

from __future__ import annotations

import pytest
from playwright.sync_api import Error

from tests.helpers.main_thread import MainThread
from tests.helpers.page_picture import count_colours

pytestmark = [pytest.mark.browser, pytest.mark.process]

START = 'import kernelserve as ks\nllm = ks.LLM("fake:step_seconds=0.01", fake_model=True)'
ASK = """params = ks.SamplingParams(max_tokens=4, detokenize=False)
llm.generate([[11, 12, 13]], params)[0].outputs[0].token_ids"""
# A picture that is replaced before a look at it can end, `times` times; a file of 9 bytes is none.
REPLACE = """async ([good, times]) => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1000;
  canvas.getContext("2d").fillRect(0, 0, 500, 1000);
  const drawn = await new Promise((done) => canvas.toBlob(done));
  const image = document.getElementById("moving") ?? document.createElement("img");
  image.id = "moving";
  document.body.append(image);
  const decode = image.decode;
  const replace = () => {
    const before = image.src;
    image.src = URL.createObjectURL(good ? drawn : new Blob(["no pixels"]));
    URL.revokeObjectURL(before);
  };
  replace();
  image.decode = () => {
    const decoding = decode.call(image);
    if (times-- > 0) replace();
    return decoding;
  };
}"""
BLOCK = """() => new Promise((done) => setTimeout(() => {
  let sum = 0;
  const end = performance.now() + 1000;
  while (performance.now() < end) sum += Math.random();
  done(sum);
}))"""


def test_a_cell_starts_an_engine_and_its_output_is_seen(lab, open_notebook):
    open_notebook(START, ASK)
    assert "error" not in {output["output_type"] for output in lab.run(0)}
    [_, result] = lab.run(1)
    lab.wait_for_text(1, result["data"]["text/plain"])
    lab.screenshot("harness")
    assert lab.traffic.kinds()["execute_result"] == 1


def test_interrupt_restart_save_and_reload(lab, open_notebook, server):
    name = open_notebook("print('begun')\nimport time\ntime.sleep(60)", "'after' + ' all'")
    lab.run_cell(0)
    lab.wait_for_text(0, "begun")
    lab.interrupt_kernel()
    lab.wait_idle(5)
    assert lab.cell_outputs(0)[-1]["ename"] == "KeyboardInterrupt"
    [kernel] = server.kernel_ids()
    lab.restart_kernel()
    assert server.kernel_ids() == [kernel]
    lab.run(1)
    lab.save()
    assert (
        server.read_notebook(name)["cells"][1]["outputs"][0]["data"]["text/plain"] == "'after all'"
    )
    lab.reload(name)
    lab.wait_for_text(1, "after all")


def test_a_page_that_cannot_react_is_noticed(lab, open_notebook):
    open_notebook("1")
    lab.run(0)  # the first cell of a page brings much code with it
    with MainThread(lab.page) as quick:
        lab.run(0)
    with MainThread(lab.page) as slow:
        lab.page.evaluate(BLOCK)
    assert 0 < quick.longest_task < 0.2 < slow.longest_task


def test_a_picture_that_is_replaced_is_seen_and_a_broken_one_is_not(lab):
    picture = lab.page.locator("#moving")
    lab.page.evaluate(REPLACE, [True, 5])
    assert count_colours(picture) == 2
    lab.page.evaluate(REPLACE, [False, 2])
    with pytest.raises(Error, match="cannot be decoded"):
        count_colours(picture)
    picture.evaluate("(image) => image.remove()")


def test_an_error_of_the_page_is_noticed(lab):
    lab.page.evaluate("console.error('seen')")
    assert lab.errors == ["seen"]
    lab.errors.clear()
