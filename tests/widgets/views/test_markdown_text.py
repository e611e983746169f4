"""What a model wrote, rendered as Markdown by two parsers: nothing loads, runs or leads anywhere but to the web."""

from __future__ import annotations

import html
import time
from html.parser import HTMLParser

import mistune
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from kernelserve_widgets.views.markdown_text import safe_markdown

BENIGN_TAGS = {
    "a", "p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "code", "pre", "em", "strong", "del",
    "s", "hr", "br", "table", "thead", "tbody", "tr", "th", "td",
}  # fmt: skip
BENIGN_ATTRIBUTES = {
    ("ol", "start"),
    ("code", "class"),
    ("th", "style"),
    ("td", "style"),
    ("a", "href"),
}


class Rendered(HTMLParser):
    """The tags, the links and the visible text of some HTML."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.links: list[str] = []
        self.comments: list[str] = []
        self.text = ""
        self.feed(source)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name) for name, _ in attrs]
        self.links += [value or "" for name, value in attrs if name == "href"]

    def handle_data(self, data):
        self.text += data

    def handle_comment(self, data):
        self.comments.append(data)


def with_markdown_it(markdown: str) -> Rendered:
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    parser.validateLink = lambda url: bool(url) or True  # type: ignore[method-assign] # it must not save us
    return Rendered(parser.render(markdown))


def with_mistune(markdown: str) -> Rendered:
    renderer = mistune.HTMLRenderer(escape=False, allow_harmful_protocols=True)
    parser = mistune.create_markdown(renderer=renderer, plugins=["table", "strikethrough", "url"])
    return Rendered(str(parser(markdown)))


RENDERERS = [with_markdown_it, with_mistune]


def assert_harmless(markdown: str) -> None:
    for render in RENDERERS:
        shown = render(markdown)
        assert set(shown.tags) <= BENIGN_TAGS, (render.__name__, markdown)
        assert set(shown.attributes) <= BENIGN_ATTRIBUTES, (render.__name__, markdown)
        assert not shown.comments, (render.__name__, markdown)
        for link in shown.links:
            assert link.lower().startswith(("http://", "https://", "mailto:")), (
                render.__name__,
                link,
            )


ATTACKS = [
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "<svg/onload=alert(1)>",
    "<IMG SRC=x ONERROR=alert(1)",
    "text <b>bold</b> <a href='javascript:alert(1)'>x</a>",
    "<!-- comment --> <!DOCTYPE html> <?php ?> <![CDATA[x]]>",
    "<div>\n\n<img src=x onerror=alert(1)>\n\n</div>",
    "<iframe src=//evil>\n",
    "an unfinished <img src=x onerror=alert(1) ",
    "[a](javascript:alert(1))",
    "[a](JaVaScRiPt:alert(1))",
    "[a]( javascript:alert(1) )",
    "[a](<javascript:alert(1)>)",
    "[a](java\tscript:alert(1))",
    "[a](\x01javascript:alert(1))",
    "[a](&#106;avascript:alert(1))",
    "[a](&#x6A;avascript&colon;alert(1))",
    "[a](&amp;#106;avascript:alert(1))",
    "[a](javascript&#58;alert(1))",
    "[a](\\javascript:alert(1))",
    "[a](data:text/html;base64,PHNjcmlwdD4=)",
    "[a](vbscript:x) [b](file:///etc/passwd) [c](//evil.com) [d](/lab/api) [e](attachment:x.png)",
    "[a](http://x\" onclick=\"alert(1))",
    "[a](<http://x> \"t\" onclick=alert(1))",
    "[a](http://x 'title\" onmouseover=alert(1)')",
    "![a](http://tracker.example/p.png)",
    "![a](javascript:alert(1))",
    "!![a](http://tracker.example/p.png)",
    "\\![a](http://tracker.example/p.png) \\\\![b](http://t/p.png)",
    "![a [b](http://x)](http://tracker/p.png)",
    "[![a](http://tracker/p.png)](javascript:alert(1))",
    "![a][ref]\n\n[ref]: http://tracker/p.png",
    "[a][ref] [ref]\n\n[ref]: javascript:alert(1)",
    "[ref]:\njavascript:alert(1)\n\n[ref]",
    "[re\nf]: javascript:alert(1)\n\n[re\nf]",
    "> [ref]: javascript:alert(1)\n\n[ref]",
    "<javascript:alert(1)> <http://x/onload=alert(1)> <https://x.y/\"onclick=alert(1)>",
    "`<img src=x onerror=alert(1)>",
    "`` ` <img src=x onerror=alert(1)>",
    "`a\n\n<img src=x onerror=alert(1)>`",
    "# `a\n<img src=x onerror=alert(1)>`",
    "- `a\n- <img src=x onerror=alert(1)>`",
    "| ` | <img src=x onerror=alert(1)> ` |\n|---|---|\n| ` | [a](javascript:alert(1)) ` |",
    "\\`<img src=x onerror=alert(1)>`",
    "`[a](javascript:alert(1))` ![x`](http://t/p.png)`",
    "```\nopen\n<img src=x onerror=alert(1)>",
    "```\n``` x\n<img src=x onerror=alert(1)>\n```\n<img src=x onerror=alert(1)>",
    "````\n```\n<b>\n````\n<img src=x onerror=alert(1)>",
    "~~~\n```\n<b>\n~~~\n<img src=x onerror=alert(1)>\n```",
    "``` `x`\n<img src=x onerror=alert(1)>\n```",
    "    ```\n<img src=x onerror=alert(1)>\n    ```",
    "- ```\n<img src=x onerror=alert(1)>\n- ```",
    "> ```\n<img src=x onerror=alert(1)>\n> ```",
    "1. a\n\n       <img src=x onerror=alert(1)>",
    "```html\"><img src=x onerror=alert(1)>\n<b>\n```",
    "$<img src=x onerror=alert(1)>$ $$<script>alert(1)</script>$$ $[a](javascript:alert(1))$",
    "\\(<img src=x onerror=alert(1)>\\) \\[ [a](javascript:alert(1)) \\]",
    "$[a$](javascript:alert(1)) [b$](javascript:alert(1))$",
    "\\begin{x}<img src=x onerror=alert(1)>\\end{x}",
    "\\<img src=x onerror=alert(1)> \\\\<img src=x onerror=alert(1)> \\[a\\](javascript:alert(1))",
    "&lt;img src=x onerror=alert(1)&gt; &#60;img src=x onerror=alert(1)>",
    "a\r<img src=x onerror=alert(1)>\r\n```\r<b>\r```\r<img src=x onerror=alert(1)>",
    "\x00<img src=x onerror=alert(1)>",
]  # fmt: skip


@pytest.mark.parametrize("text", ATTACKS)
def test_c19_nothing_that_a_model_writes_is_live(text: str) -> None:
    assert_harmless(safe_markdown(text))


@pytest.mark.parametrize("text", ATTACKS)
def test_c19_nor_any_beginning_of_it(text: str) -> None:
    """A stream may be stopped anywhere."""
    for end in range(len(text)):
        assert_harmless(safe_markdown(text[:end]))


def test_the_attacks_are_live_without_it() -> None:
    live = [text for text in ATTACKS if _is_live(text)]
    assert len(live) > 30


def _is_live(text: str) -> bool:
    try:
        assert_harmless(text)
    except AssertionError:
        return True
    return False


PIECES = st.sampled_from(
    "` `` ``` ~~~ ````\n < > & [ ] ( ) ! \\ : | $ $$ * _ # - \n \n\n > 1. \t javascript: http://a.b/ mailto:a@b "
    "&lt; &#60; <img\tsrc=x> <b> </b> [a](javascript:x) ![a](http://b/c) [r]: [r] a b"
    .replace("\n", "\u2424")
    .split(" ")
)  # fmt: skip


@settings(max_examples=600, deadline=None)
@given(st.lists(PIECES | st.just(" ") | st.just("    "), max_size=24))
def test_c19_no_mixture_of_markup_is_live(pieces: list[str]) -> None:
    text = "".join(pieces).replace("\u2424", "\n").replace("img\tsrc", "img src")
    assert_harmless(safe_markdown(text))


@pytest.mark.parametrize(
    ("text", "tags", "shown"),
    [
        ("# Title\n\n- one\n- *two*\n\n**bold** ~~gone~~", ["h1", "ul", "li", "li", "em", "p", "strong"], "Title"),
        ("a < b && c > d", ["p"], "a < b && c > d"),
        ("AT&T &lt;not a tag&gt; &copy;", ["p"], "AT&T &lt;not a tag&gt; &copy;"),
        ("std::vector<int> v; x[0](1) dict[k]: v", ["p"], "std::vector<int> v; x[0](1) dict[k]: v"),
        ("use `a<b>` and ``x`y`` and `m[0]|&`", ["p", "code", "code", "code"], "use a<b> and x`y and m[0]|&"),
        ("```python\nif a < b & c:\n    pass\n```", ["pre", "code"], "if a < b & c:\n    pass"),
        ("```\nnever closed <b>", ["pre", "code"], "never closed <b>"),
        ("~~~\n```\ninner\n```\n~~~", ["pre", "code"], "```\ninner\n```"),
        ("1. one\n   ```js\n   a<b\n     c\n   ```\n2. two", ["ol", "li", "pre", "code", "ol", "li"], "a<b\n  c"),
        ("- ```js\n  a<b\n  ```\n- two", ["ul", "li", "pre", "code", "ul", "li"], "a<b\n"),
        ("> ```\n> a<b\n> ```\n> after", ["blockquote", "pre", "code", "blockquote", "p"], "a<b\n"),
        ("para\n\n    indented <b>\n    more", ["p", "pre", "code"], "indented <b>\nmore"),
        ("- [ ] open\n- [x] done", ["ul", "li", "li"], "[ ] open"),
        ("\\<b> \\*x\\* \\# \\\\", ["p"], "<b> *x* # \\"),
        ("| a | b |\n|---|--:|\n| `x` | <y> |", ["table", "thead", "tr", "th", "tbody", "tr", "td", "code"], "<y>"),
    ],
)  # fmt: skip
def test_what_is_harmless_keeps_its_look(text: str, tags: list[str], shown: str) -> None:
    for render in RENDERERS:
        result = render(safe_markdown(text))
        found = iter(tag for tag in result.tags)
        assert all(tag in found for tag in tags), result.tags
        assert shown in result.text


@pytest.mark.parametrize(
    ("text", "link", "label"),
    [
        ("[docs](https://example.org/a_b?x=1&y=2#z)", "https://example.org/a_b?x=1&y=2#z", "docs"),
        (
            "[wiki](https://en.wikipedia.org/wiki/A_(b))",
            "https://en.wikipedia.org/wiki/A_%28b%29",
            "wiki",
        ),
        ('[t](http://e.org "a title")', "http://e.org", "t"),
        ("[a < b](<http://e.org/x y>)", "http://e.org/xy", "a < b"),
        ("[m](mailto:a@b.org)", "mailto:a@b.org", "m"),
        ("![alt *text*](http://e.org/p.png)", "http://e.org/p.png", "alt text"),
        ("![](http://e.org/p.png)", "http://e.org/p.png", "http://e.org/p.png"),
        ("<https://e.org/a_b_c>", "https://e.org/a_b_c", "https://e.org/a_b_c"),
        ("[ü](https://e.org/ü?q=100%)", "https://e.org/%C3%BC?q=100%25", "ü"),
    ],
)
def test_web_links_stay_links_and_images_become_links(text: str, link: str, label: str) -> None:
    for render in RENDERERS:
        result = render(safe_markdown(text))
        assert [html.unescape(found) for found in result.links] == [link]
        assert result.text.strip() == label


@pytest.mark.parametrize(
    "text", ["[a](javascript:alert(1))", "[a](b.md)", "[r]: http://x", "![i](data:image/png,x)"]
)
def test_what_is_no_link_is_shown_as_it_was_written(text: str) -> None:
    assert with_markdown_it(safe_markdown(text)).text.strip() == text


def test_math_reaches_the_front_end_as_it_is() -> None:
    text = "$a_1 & b$, $x[0]$ and\n$$\n\\begin{matrix} 1 & 2 \\\\ 3 & 4 \\end{matrix}\n$$"
    assert safe_markdown(text) == text
    assert safe_markdown("$a<b$") == "$a\\lt b$"
    assert safe_markdown("from $5 to $6 <b>") == "from $5 to $6 &#60;b>"


@pytest.mark.parametrize("language", ["mermaid", "Mermaid", "math", "{raw} html", "{code-cell}"])
def test_no_fence_is_drawn_instead_of_shown(language: str) -> None:
    assert safe_markdown(f"```{language}\nx\n```").splitlines()[0] == "```"


def test_a_long_answer_takes_little_time() -> None:
    began = time.process_time()
    for piece in (
        "`",
        "[",
        "!",
        "![",
        "$",
        "\\[",
        "\\begin{a}",
        "<",
        "`a ",
        "[a](",
        "$a$",
        "```\n",
        "> ",
        "&#",
    ):
        safe_markdown(piece * (20_000 // len(piece)))
    assert time.process_time() - began < 10
