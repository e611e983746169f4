"""Small tokenizers of the kinds that real models use, made in milliseconds."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing

from kernelserve.client.tokenizer import ClientTokenizer

TEXT = (
    "Here is the English alphabet: ABC DEF GHI JKL MNO PQR STU VWX YZ. The capital of France is "
    "Paris, and the quick brown fox jumps over the lazy dog while it is raining in the garden.\n"
    "An engine turns tokens into text: it never shows half a character.\n\n"
)
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def save(tokenizer: Tokenizer, folder: Path, **config: Any) -> Path:
    """Write the files of a model folder."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def make_byte_level() -> Tokenizer:
    """GPT-2's kind: all bytes are in the vocabulary, a space belongs to the word after it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=SPECIAL,
    )
    tokenizer.train_from_iterator([TEXT] * 20, trainer)
    return tokenizer


def make_byte_fallback() -> Tokenizer:
    """Llama 2's kind: pieces begin with a mark for the space, unknown characters are bytes."""
    normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizer
    trainer = trainers.BpeTrainer(vocab_size=200, show_progress=False, max_token_length=8)
    trained.train_from_iterator([TEXT.replace("\n", " ")] * 20, trainer)
    model = json.loads(trained.to_str())["model"]
    special = ["<unk>", "<s>", "</s>"]
    pieces = [*special, *(f"<0x{byte:02X}>" for byte in range(256)), *model["vocab"]]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={piece: i for i, piece in enumerate(pieces)},
            merges=[tuple(merge) for merge in model["merges"]],
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(special)
    tokenizer.post_processor = TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    return tokenizer


def load(tokenizer: Tokenizer, **config: Any) -> ClientTokenizer:
    """Read a tokenizer back from a model folder, which is gone afterwards."""
    with TemporaryDirectory(prefix="kernelserve-test-") as folder:
        return ClientTokenizer(save(tokenizer, Path(folder), **config))


@lru_cache
def byte_level() -> ClientTokenizer:
    """A byte-level tokenizer with a chat template; adds no BOS."""
    return load(
        make_byte_level(),
        eos_token="<|im_end|>",
        bos_token="<|im_start|>",
        chat_template=CHAT_TEMPLATE,
    )


@lru_cache
def byte_fallback() -> ClientTokenizer:
    """A byte-fallback tokenizer that adds a BOS."""
    return load(
        make_byte_fallback(),
        bos_token="<s>",
        eos_token="</s>",
        chat_template=(
            "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}"
        ),
    )


def fake_model_that_speaks(folder: Path, **options: Any) -> str:
    """Return the name of a fake model whose answers are readable pieces of words; use it with `fake_model=True`.

    `options` are those of `make_fake_executor`. It has a chat template, and no special token ever comes out.
    """
    config = {"chat_template": CHAT_TEMPLATE, "eos_token": "<|im_end|>"}
    save(make_byte_level(), folder, **config)
    first_merge = len(SPECIAL) + 256
    settings = {"tokenizer": folder, "first_token": first_merge} | options
    return "fake:" + ",".join(f"{name}={value}" for name, value in settings.items())
