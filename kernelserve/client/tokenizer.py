"""The tokenizer of a model in the client: `tokenizers` and a chat template, no transformers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from kernelserve.client.chat_prompt import LITERAL_MARK, plain_text
from kernelserve.client.chat_template import ChatMessage, ChatTemplate
from kernelserve.client.literal_text import LiteralMarker
from kernelserve.errors import InvalidRequestError, ModelFilesError

__all__ = ["ClientTokenizer"]


class ClientTokenizer:
    """Text to token ids and back, as transformers does it. May be used by several threads.

    Special tokens written out in a text become special tokens, as in transformers. For text of
    strangers pass `split_special_tokens=True`: then they are read as the characters they are
    written with.

    Raises ModelFilesError if the folder has no usable tokenizer.json.
    """

    def __init__(self, tokenizer_dir: str | Path) -> None:
        folder = Path(tokenizer_dir)
        try:
            self.backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # tokenizers raises plain Exception
            raise ModelFilesError(
                f"{folder / 'tokenizer.json'} cannot be read: {error}", phase="load tokenizer"
            ) from error
        config = _read_json(folder / "tokenizer_config.json")
        self.special_tokens = _special_tokens(_read_json(folder / "special_tokens_map.json"))
        self.special_tokens |= _special_tokens(config)
        self.chat_templates = _chat_templates(folder, config)
        self.backend.no_truncation()
        self.backend.no_padding()
        self._set_end_tokens(config)
        self.vocab_size: int = self.backend.get_vocab_size(with_added_tokens=True)
        added = self.backend.get_added_tokens_decoder()
        self.special_token_ids = frozenset(i for i, token in added.items() if token.special)
        self.byte_token_ids = self._find_byte_tokens()
        self.bos_token_id = self._token_id("bos_token")
        self._token_texts: dict[int, str] = {}

    def encode(
        self, text: str, *, add_special_tokens: bool = True, split_special_tokens: bool = False
    ) -> list[int]:
        """Return the ids of `text`; with `add_special_tokens` and one BOS if the model has one.

        Raises InvalidRequestError for text that cannot be encoded.
        """
        backend = self._literal_backend if split_special_tokens else self.backend
        try:
            ids: list[int] = backend.encode(text, add_special_tokens=add_special_tokens).ids
        except Exception as error:  # tokenizers raises plain Exception
            raise InvalidRequestError(f"the text cannot be tokenized: {error}") from error
        bos = self.bos_token_id
        if add_special_tokens and bos is not None and ids[:2] == [bos, bos]:
            return ids[1:]  # the text brought its own
        return ids

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of `token_ids`; ids without a text are left out."""
        return self.backend.decode(list(token_ids), skip_special_tokens=skip_special_tokens)

    def token_text(self, token_id: int) -> str:
        """Return the text of one token in a sentence; part of a character is U+FFFD."""
        text = self._token_texts.get(token_id)
        if text is None:
            context = self._plain_context
            prefix = self.decode(context, skip_special_tokens=False)
            whole = self.decode([*context, token_id], skip_special_tokens=False)
            text = whole[len(prefix) :]
            self._token_texts[token_id] = text
        return text

    def render_chat_template(
        self,
        messages: Sequence[ChatMessage],
        *,
        chat_template: str | None = None,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        rewrite: Callable[[str], str] | None = None,
        **variables: Any,
    ) -> str:
        """Return the prompt for `messages`. Raises InvalidRequestError.

        `chat_template` is a template or the name of one of the model's. The generation prompt is
        added unless the final message is continued. `variables` and `chat_template_kwargs` are
        what else the template may read, `enable_thinking` for example.
        """
        if add_generation_prompt is None:
            add_generation_prompt = not continue_final_message
        template = ChatTemplate(self._choose_template(chat_template, has_tools=bool(tools)))
        return template.render(
            messages,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            tools=tools,
            documents=documents,
            variables=self.special_tokens | dict(chat_template_kwargs or {}) | variables,
            rewrite=rewrite,
        )

    def apply_chat_template(
        self,
        messages: Sequence[ChatMessage],
        *,
        split_special_tokens: bool = False,
        **options: Any,
    ) -> tuple[str, list[int]]:
        """Return the prompt for `messages` as text and as token ids, without a second BOS.

        `options` are those of `render_chat_template`. With `split_special_tokens` nothing in the
        messages, tools and documents can become a special token; those of the template do.
        """
        if not split_special_tokens:
            text = self.render_chat_template(messages, **options)
            return text, self.encode(text, add_special_tokens=False)
        text = self.render_chat_template(messages, **options, rewrite=self.mark_all_literal)
        return plain_text(text, ""), self.encode_marked(text)

    def mark_all_literal(self, text: str) -> str:
        """Mark each special token of a text, so that it is only the characters it is written with."""
        return self._special_marker.mark(text)

    def encode_marked(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Return the ids of a text with marks: the character after a mark is only this character."""
        first, *others = text.split(LITERAL_MARK)
        ids = self.encode(first, add_special_tokens=add_special_tokens)
        for part in others:
            ids += self.encode(part[:1], add_special_tokens=False, split_special_tokens=True)
            ids += self.encode(part[1:], add_special_tokens=False)
        return ids

    def with_bos(self, ids: list[int]) -> list[int]:
        """Return `ids` with a BOS before them, if this tokenizer adds one and it is not there yet."""
        bos = self.bos_token_id
        if bos is None or ids[:1] == [bos] or self.encode("")[:1] != [bos]:
            return ids
        return [bos, *ids]

    @cached_property
    def _literal_backend(self) -> Tokenizer:
        literal = Tokenizer.from_str(self.backend.to_str())
        literal.encode_special_tokens = True
        return literal

    @cached_property
    def _plain_context(self) -> list[int]:
        """Return a token that can stand before any other without changing it."""
        ids = self.backend.encode("a", add_special_tokens=False).ids[-1:]
        prefix = self.decode(ids)
        whole = self.decode(ids + ids)
        return ids if prefix and whole.startswith(prefix) else []

    @cached_property
    def _special_marker(self) -> LiteralMarker:
        return LiteralMarker(
            self.backend.id_to_token(i) or "" for i in sorted(self.special_token_ids)
        )

    def _choose_template(self, chosen: str | None, *, has_tools: bool) -> str:
        if chosen is not None:
            return self.chat_templates.get(chosen, chosen)
        if has_tools and "tool_use" in self.chat_templates:
            return self.chat_templates["tool_use"]
        if "default" not in self.chat_templates:
            raise InvalidRequestError(
                "this model has no chat template: pass chat_template=..., or send a plain prompt"
            )
        return self.chat_templates["default"]

    def _set_end_tokens(self, config: Mapping[str, Any]) -> None:
        """Let `add_bos_token` and `add_eos_token` of the config overrule tokenizer.json."""
        if "add_bos_token" not in config and "add_eos_token" not in config:
            return
        names = [
            name if config.get(f"add_{name}") and self._token_id(name) is not None else None
            for name in ("bos_token", "eos_token")
        ]
        before, after = (self.special_tokens[name] if name else None for name in names)
        single = [*([before] if before else []), "$A", *([after] if after else [])]
        self.backend.post_processor = TemplateProcessing(
            single=single,
            special_tokens=[
                (text, self.backend.token_to_id(text)) for text in {before, after} if text
            ],
        )

    def _find_byte_tokens(self) -> frozenset[int]:
        """Return the ids of `<0x00>` ... `<0xFF>` if they stand for bytes (byte fallback)."""
        ids = [self.backend.token_to_id(f"<0x{byte:02X}>") for byte in range(256)]
        known = [token_id for token_id in ids if token_id is not None]
        if not known or self.decode(known[:1]).startswith("<0x"):
            return frozenset()
        return frozenset(known)

    def _token_id(self, name: str) -> int | None:
        text = self.special_tokens.get(name)
        return None if text is None else self.backend.token_to_id(text)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise ModelFilesError(f"{path} cannot be read: {error}", phase="load tokenizer") from error
    return value if isinstance(value, dict) else {}


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Return `bos_token`, `eos_token`, ...: each is a string, or a dict with its content."""
    tokens = {}
    for name, value in config.items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            tokens[name] = text
    return tokens


def _chat_templates(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    found = config.get("chat_template")
    templates: dict[str, str] = {}
    if isinstance(found, str):
        templates["default"] = found
    elif isinstance(found, list):
        templates |= {entry["name"]: entry["template"] for entry in found}
    elif isinstance(old := _read_json(folder / "chat_template.json").get("chat_template"), str):
        templates["default"] = old  # of processors, before they had chat_template.jinja
    for path in (folder / "additional_chat_templates").glob("*.jinja"):
        templates[path.stem] = path.read_text(encoding="utf-8")
    if (path := folder / "chat_template.jinja").exists():
        templates["default"] = path.read_text(encoding="utf-8")
    return templates
