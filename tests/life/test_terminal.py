"""%%generate in a plain ipython, as a user types it (user-needs A21, C18)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.tokenizers import fake_model_that_speaks

pytestmark = pytest.mark.process


@pytest.mark.parametrize("jupyter", ["installed", "blocked"])
def test_the_magics_work_in_a_terminal(tmp_path: Path, runtime_folder: Path, jupyter: str) -> None:
    model = fake_model_that_speaks(tmp_path / "tokenizer", step_seconds=0.002)
    block = "import sys\nfor name in ('ipywidgets', 'anywidget', 'ipykernel', 'matplotlib'): sys.modules[name] = None\n"
    lines = [
        *(block.splitlines() if jupyter == "blocked" else []),
        "%load_ext kernelserve",
        f"%serve {model} --fake-model",
        "get_ipython().run_cell('%%generate -o a --max-tokens 12\\nHello')",
        "print('TEXT', repr(a.text), a.finish_reason)",
        "%requests",
        "%timeline",
        "get_ipython().run_cell('%%generate --nope\\nHello')",
        "%engine stop",
        "exit",
    ]
    command = [
        sys.executable,
        "-m",
        "IPython",
        "--simple-prompt",
        "--no-banner",
        "--colors=NoColor",
    ]
    done = subprocess.run(
        command, input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=90, check=False,
        env=os.environ | {"IPYTHONDIR": str(tmp_path / "ipython")},
    )  # fmt: skip
    out = done.stdout
    [line] = [line for line in out.splitlines() if "TEXT " in line and "repr" not in line]
    text, reason = line.partition("TEXT ")[2].rsplit(" ", 1)
    assert reason == "length"
    assert out.count(eval(text)) >= 1, "the text streams to the terminal"
    assert "r1" in out
    assert "there is no option --nope" in out + done.stderr
    assert "Traceback" not in out + done.stderr
