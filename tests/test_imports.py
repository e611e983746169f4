"""What an import costs a notebook, and what the engine needs, seen in fresh interpreters."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

HEAVY = (
    "IPython",
    "PIL",
    "blake3",
    "gguf",
    "ipykernel",
    "ipywidgets",
    "jupyter_client",
    "numpy",
    "safetensors",
    "torch",
    "traitlets",
    "transformers",
)
MAX_RSS_MB = 120


def run_fresh(code: str, *, timeout: float = 60.0) -> str:
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_import_loads_nothing_heavy() -> None:
    loaded = json.loads(
        run_fresh("""
            import kernelserve
            for name in kernelserve.__all__:
                getattr(kernelserve, name)
            import json, sys
            print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
        """)
    )
    assert not set(HEAVY) & set(loaded)


def test_import_has_no_side_effects() -> None:
    before, after = json.loads(
        run_fresh("""
            import asyncio, json, logging, os, signal, threading, warnings

            def state():
                return [
                    type(asyncio.get_event_loop_policy()).__name__,
                    threading.active_count(),
                    sorted(os.environ),
                    [str(signal.getsignal(number)) for number in (2, 15, 17)],
                    len(logging.getLogger().handlers),
                    len(warnings.filters),
                    os.getcwd(),
                ]

            before = state()
            import kernelserve
            for name in kernelserve.__all__:
                getattr(kernelserve, name)
            print(json.dumps([before, state()]))
        """)
    )
    assert before == after


def test_import_is_small() -> None:
    megabytes = float(
        run_fresh("""
            import kernelserve
            for name in kernelserve.__all__:
                getattr(kernelserve, name)
            with open("/proc/self/statm") as statm:
                pages = int(statm.read().split()[1])
            import resource
            print(pages * resource.getpagesize() / 2**20)
        """)
    )
    assert megabytes < MAX_RSS_MB


@pytest.mark.process
def test_generates_with_every_jupyter_import_blocked() -> None:
    """Neither the client here nor the engine process it starts may need a Jupyter package."""
    out = run_fresh(
        """
        import os, sys, tempfile, textwrap

        BLOCKED = ("IPython", "ipykernel", "ipywidgets", "jupyter_client", "traitlets")
        block = textwrap.dedent(f'''
            import sys
            class Blocker:
                def find_spec(self, name, path=None, target=None):
                    if name.partition(".")[0] in {BLOCKED}:
                        raise ImportError(f"{{name}} is blocked by the test")
            sys.meta_path.insert(0, Blocker())
        ''')
        exec(block)
        # The engine process gets the same blocker through a sitecustomize of its own.
        folder = tempfile.mkdtemp()
        with open(os.path.join(folder, "sitecustomize.py"), "w") as file:
            file.write(block)
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])

        import kernelserve as ks
        try:
            import traitlets
        except ImportError:
            print("blocked here")
        import subprocess
        child = [sys.executable, "-c", "import traitlets"]
        probe = subprocess.run(child, stderr=subprocess.DEVNULL)
        print("blocked in children" if probe.returncode else "not blocked in children")
        with ks.LLM(show_progress=False) as llm:
            params = ks.SamplingParams(temperature=0, max_tokens=8)
            [output] = llm.generate("The capital of France is", params, use_tqdm=False)
            print(output.text)
        """,
        timeout=110.0,
    )
    assert "blocked here" in out
    assert "blocked in children" in out
    assert "not blocked in children" not in out
    assert "Paris" in out
