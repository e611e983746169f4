"""Uses an installed kernelserve with only the wheel's own requirements, far from any checkout."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from pathlib import Path

import kernelserve as ks


def main() -> None:
    installed = Path(ks.__file__).resolve()
    assert Path(sys.prefix).resolve() in installed.parents, f"{installed} is not the wheel's"
    assert importlib.util.find_spec("IPython") is None, "Jupyter is not a requirement"

    files = importlib.metadata.files("kernelserve") or []
    top_level = {file.parts[0] for file in files}
    version = importlib.metadata.version("kernelserve")
    assert version == ks.__version__
    packages = {"kernelserve", "kernelserve_widgets"}
    assert top_level == packages | {f"kernelserve-{version}.dist-info"}, top_level
    assert any(file.suffix == ".js" for file in files)
    assert any(file.name == "LICENSE" for file in files)
    assert any(file.name == "py.typed" for file in files)

    with ks.LLM() as llm:
        params = ks.SamplingParams(temperature=0, max_tokens=8)
        [output] = llm.generate("The capital of France is", params)
    assert "Paris" in output.text, output.text
    sys.stdout.write(f"kernelserve {version} from the wheel says:{output.text}\n")


if __name__ == "__main__":
    main()
