"""%%generate --image: user-needs B9 by its number."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.front_end import FrontEnd
from tests.helpers.pictures import random_picture
from tests.helpers.vision_reference import VisionReference

pytestmark = [pytest.mark.notebook, pytest.mark.process]


def value(front: FrontEnd, expression: str):
    return eval(front.ok(f"print(repr({expression}))"))


@pytest.mark.timeout(240)
def test_b9_pictures_are_named_in_the_line_in_order(new_kernel, tmp_path: Path) -> None:
    reference = VisionReference("llava", tmp_path / "llava")
    picture = random_picture(40, 30, 1)
    picture.save(tmp_path / "photo.png")
    front = FrontEnd(new_kernel())
    front.ok("%load_ext kernelserve")
    front.ok(
        f"%serve {reference.folder} --dtype float32 --device cpu --num-gpu-blocks 200 --num-threads 1"
    )
    front.ok(
        "import io, numpy as np\n"
        "from matplotlib.figure import Figure\n"
        "from pathlib import Path\n"
        "from PIL import Image\n"
        f"path = {str(tmp_path / 'photo.png')!r}\n"
        "photo = Image.open(path)\n"
        "array = np.asarray(photo)\n"
        "data = Path(path).read_bytes()\n"
        "figure = Figure(figsize=(1, 1)); figure.subplots().plot([1, 2])\n"
    )
    options = "--temperature 0 --max-tokens 6 --ignore-eos"
    answers = []
    for name in ("photo", "array", "data", str(tmp_path / "photo.png")):
        front.ok(f"%%generate -o a --image {name} {options}\nWhat is it?")
        answers.append(value(front, "a.token_ids"))
    assert answers[0] == answers[1] == answers[2] == answers[3]
    front.ok(f"%%generate -o b --image figure {options}\nWhat is it?")
    front.ok(f"%%generate -o ab --logprobs 1 --image photo --image figure {options}\nWhat is it?")
    front.ok(f"%%generate -o ba --logprobs 1 --image figure --image photo {options}\nWhat is it?")
    front.ok(
        "import kernelserve as ks\n"
        "def first_logprob(*images):\n"
        "    parts = [{'type': 'image', 'image': image} for image in images]\n"
        "    content = [*parts, {'type': 'text', 'text': 'What is it?'}]\n"
        "    params = ks.SamplingParams(temperature=0, max_tokens=1, ignore_eos=True, logprobs=1)\n"
        "    [output] = ks.LLM.running().chat([{'role': 'user', 'content': content}], params, use_tqdm=False)\n"
        "    return best(output.outputs[0].logprobs)\n"
        "def best(logprobs):\n"
        "    return max(entry.logprob for entry in logprobs[0].values())\n"
    )
    given, python = value(
        front,
        "([best(ab.logprobs), best(ba.logprobs)], [first_logprob(photo, figure), first_logprob(figure, photo)])",
    )
    assert given == pytest.approx(python, abs=1e-5)
    assert abs(given[0] - given[1]) > 1e-3, "the order makes a difference, and it is kept"
    front.ok(
        f"%cd -q {tmp_path}\n"
        "zone = ks.dropzone()\n"
        "turned = photo.rotate(90, expand=True)\n"
        "for one in (photo, turned):\n"
        "    one.save(file := io.BytesIO(), 'png')\n"
        "    zone.add(file.getvalue(), 'a.png', '', 'a drop')\n"
    )
    front.ok(f"%%generate -o zoned --logprobs 1 --image zone {options}\nWhat is it?")
    given, itself, one_by_one = value(
        front, "(best(zoned.logprobs), first_logprob(zone), first_logprob(photo, turned))"
    )
    assert given == pytest.approx(one_by_one, abs=1e-5)
    assert itself == pytest.approx(one_by_one, abs=1e-5), "the zone stands for all its pictures"
    sides = "(ks.LLM.running().engine.image_side, zone._find_limits().shrunk_side)"
    assert value(front, sides) == (32, 512), (
        "no larger than the model needs, nor too small for people"
    )
    status = front.ok("%engine status")
    assert "encoder cache: 0 used" in status
    words = front.ok("t = ks.timeline()\nprint([t.describe(s) for s in t.steps][:2])")
    assert "an image of r1 was encoded" in words
    source = value(front, "ab.continuation(1, ab.token_ids[1])")
    assert source.startswith("%%generate --continue-from ")
    assert "--image" not in source
    front.ok(source.replace("%%generate", "%%generate -o rest", 1))
    assert value(front, "rest.token_ids[:4] == ab.token_ids[2:]")
    assert value(front, "rest.usage.num_image_tokens == ab.usage.num_image_tokens == 32")
    again = value(front, "rest.continuation(0, rest.token_ids[0])")
    front.ok(again.replace("%%generate", "%%generate -o more", 1))
    assert value(front, "more.token_ids[:3] == ab.token_ids[3:]")
    chat = front.run(f"%%generate --chat c --image photo {options}\nWhat is it?")
    assert chat.error is None, chat.traceback
    front.ok(f"%%generate -o second --chat c {options}\nAnd now?")
    assert "(1 image) What is it?" in front.ok("%chat show c")
    missing = front.run("%%generate --image nothing\nWhat is it?")
    assert "no variable of this notebook, no file" in (missing.error or "")
    wrong = front.run("%%generate --image np\nWhat is it?")
    assert (wrong.error or "").startswith("InvalidRequestError")
    assert "module" in (wrong.error or ""), "what it is instead of an image"
    both = front.run("%%generate --raw --image photo\nWhat is it?")
    assert "leave out --raw" in (both.error or "")
    front.ok("%engine stop")
    assert value(front, "zone._find_limits().shrunk_side") == 2048
