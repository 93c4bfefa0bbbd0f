"""Conversion of Markdown to the subset of HTML that Matrix clients accept."""

from html import unescape
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from talaria.platforms.matrix.outgoing import clean, to_html

TAGS = {
    "a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre",
    "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
ATTRIBUTES = {("a", "href"), ("ol", "start"), ("code", "class")}
SCHEMES = ("https:", "http:", "ftp:", "mailto:", "magnet:")
PIECES = [
    "**", "*", "_", "~~", "`", "```", "```py\n", "\n", "\n\n", "# ", "> ", "- ", "1. ", "[", "](", ")", "![", "<", ">",
    "&", '"', "'", "javascript:alert(1)", "https://x.example/", "data:text/html,x", "mailto:a@b", "|", "---", "\\",
    "<script>", "</p>", "onclick=", "word", " ", "    ", "\t", "é", "日本", "👩‍👩‍👧", "\x00", "\ud83d", "\r", "[a]: https://b\n",
]  # fmt: skip
anything = st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=40).map("".join))


class Reader(HTMLParser):
    """A strict HTML parser: every tag and attribute must be allowed, and tags closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS
        for name, value in attrs:
            assert (tag, name) in ATTRIBUTES
            assert name != "href" or (value or "").lower().startswith(SCHEMES)
            assert name != "class" or (value or "").startswith("language-")
        if tag == "a":
            assert "a" not in self.open
        if tag not in ("br", "hr"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ("br", "hr")
        assert not attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


@pytest.mark.slow
@given(anything)
def test_any_markdown_becomes_well_formed_html_with_allowed_tags(source: str) -> None:
    html = to_html(clean(source))
    html.encode()
    read(html)


@given(st.text(alphabet="abc äß日\n<&\"'", min_size=1))
def test_plain_text_is_preserved_in_html(source: str) -> None:
    html = to_html(source) or source.strip().replace("&", "&amp;").replace("<", "&lt;")
    assert "".join(unescape(read(html).text).split()) == "".join(source.split())


@given(anything)
def test_clean_is_idempotent(source: str) -> None:
    assert clean(clean(source)) == clean(source)


@pytest.mark.parametrize("source", ["just words", "two\nlines", "5 < 6 & so", 'she said "hi"'])
def test_text_without_markup_needs_no_html(source: str) -> None:
    assert to_html(source) == ""


@pytest.mark.parametrize(
    ("source", "html"),
    [
        ("**a** _b_ ~~c~~", "<p><strong>a</strong> <em>b</em> <del>c</del></p>"),
        ("a  \n`b`", "<p>a<br />\n<code>b</code></p>"),
        ("[x](https://y.example)", '<p><a href="https://y.example">x</a></p>'),
        ("[x](javascript:y) z", "<p>[x](javascript:y) z</p>"),
        ("[x](ftps://y) **z**", "<p>x <strong>z</strong></p>"),
        ("![cat](https://c.example/c.png)", '<p><a href="https://c.example/c.png">cat</a></p>'),
        ("```py\nx < 1\n```", '<pre><code class="language-py">x &lt; 1\n</code></pre>'),
        ("```a\"b c\n1\n```", '<pre><code class="language-a">1\n</code></pre>'),
        ("3. x", '<ol start="3">\n<li>x</li>\n</ol>'),
        ("<b>x</b> *y*", "<p>&lt;b&gt;x&lt;/b&gt; <em>y</em></p>"),
    ],
)  # fmt: skip
def test_markdown_is_converted_to_html(source: str, html: str) -> None:
    assert to_html(source) in (html, "") if html == f"<p>{source}</p>" else to_html(source) == html


def test_table_has_no_style_attributes() -> None:
    html = to_html("| a | b |\n|:--|--:|\n| 1 | 2 |")
    read(html)
    assert "<th>a</th>" in html
