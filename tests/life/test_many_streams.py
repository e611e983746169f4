"""Sixteen streams and a dashboard at once: user-needs C5."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.front_end import FrontEnd
from tests.helpers.tokenizers import fake_model_that_speaks

pytestmark = [pytest.mark.notebook, pytest.mark.process]

NUM_STREAMS = 16
NUM_TOKENS = 500


def test_c5_messages_stay_few_and_the_texts_are_complete(new_kernel, tmp_path: Path) -> None:
    front = FrontEnd(new_kernel())
    model = fake_model_that_speaks(tmp_path / "tokenizer", step_seconds=0.01)
    front.ok(f"%load_ext kernelserve\n%serve {model} --fake-model")
    front.ok("%dashboard")
    cells = [
        front.run(f"%%generate -b -o v{i} --raw --max-tokens {NUM_TOKENS}\nnumber {i}")
        for i in range(NUM_STREAMS)
    ]
    before = front.num_messages, front.num_bytes
    seconds = 4.0
    front.listen(seconds)
    messages = (front.num_messages - before[0]) / seconds
    num_bytes = (front.num_bytes - before[1]) / seconds
    assert 10 < messages < 60
    assert num_bytes < 300_000
    front.wait(lambda: not any(cell.widgets for cell in cells), timeout=60)
    texts = eval(
        front.ok(
            f"print([v.wait().text for v in ({', '.join(f'v{i}' for i in range(NUM_STREAMS))})])"
        )
    )
    assert len(set(texts)) == NUM_STREAMS
    for cell, text in zip(cells, texts, strict=True):
        assert text in cell.text
    assert eval(front.ok("print([len(v.token_ids) for v in (v0, v7, v15)])")) == [NUM_TOKENS] * 3
