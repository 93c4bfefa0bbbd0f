"""Fetch tool: pages as readable text, within limits."""

import asyncio
import gzip
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import fpdf
import pytest
from aiohttp import web
from docx import Document as WordDocument
from tests.tools.tool_calls import call_from
from tests.tools.web.web_server import WebServer, web_server

from talaria.contracts.tool import ProposedAction, Tool
from talaria.core.errors import ToolFailed
from talaria.tools.web.fetch import PAGE_LENGTH, WebClient, WebFetch, WebFetchArguments

PAGE = """<!doctype html><html><head><title>Bread &amp; butter</title><style>p {}</style></head><body>
<nav><a href="/home">Home</a></nav><script>alert(1)</script>
<h1>Baking</h1><p>Mix   <b>flour</b> with
<a href="/water?a=1">water</a>, run <code>bake --hot</code>.<br>Wait.</p>
<span hidden>unseen</span><div style="display: none">unseen</div><p aria-hidden="true">unseen</p>
<ul><li>rye</li><li>wheat<ol><li>white</li><li>dark</li></ol></li></ul>
<pre>def bake():
    return 1</pre>
<blockquote><p>Good bread.</p></blockquote>
<table><tr><th>Flour</th><th>Grams</th></tr><tr><td>rye | dark</td><td>500</td></tr></table>
<span><div>Loose</div></span><img src="x.png" alt="A loaf"><a href="javascript:x()">press</a>
<footer>imprint</footer></body></html>"""
TEXT = """# Bread & butter

# Baking

Mix flour with [water](http://{server}/water?a=1), run `bake --hot`.
Wait.

- rye
- wheat
  1. white
  2. dark

```
def bake():
    return 1
```

> Good bread.

| Flour | Grams |
| --- | --- |
| rye \\| dark | 500 |

Loose

[image: A loaf]press"""


@pytest.fixture
async def server() -> AsyncIterator[WebServer]:
    async with web_server() as served:
        yield served


@pytest.fixture
async def tool(server: WebServer) -> AsyncIterator[WebFetch]:
    tool = WebFetch(WebClient(allowed={server.authority}, size_limit=200_000, time_limit=timedelta(seconds=5)))
    yield tool
    await tool.close()


async def read(tool: Tool, url: str, first: int = 1) -> str:
    return (await tool.run(WebFetchArguments(url, first), call_from(Path()))).text


async def test_page_is_returned_as_markdown(server: WebServer, tool: WebFetch) -> None:
    assert await read(tool, server.serve("/", PAGE)) == TEXT.format(server=server.authority)
    assert tool.proposed_action(WebFetchArguments("https://a.test/")) == ProposedAction("fetch", "https://a.test/")


async def test_main_element_is_read_without_the_rest_of_the_page(server: WebServer, tool: WebFetch) -> None:
    words = "Word " * 80
    page = f"<title>T</title><body><div>menu menu</div><main><p>{words}</p></main><div>more</div></body>"
    assert await read(tool, server.serve("/", page)) == f"# T\n\n{words.strip()}"


@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        ("<p>Grüße</p>".encode("latin-1"), "text/html; charset=iso-8859-1"),
        ("<p>Grüße</p>".encode("mac_roman"), "text/html; charset=x-mac-roman"),
        ("<meta charset='windows-1252'><p>Grüße</p>".encode("cp1252"), "text/html"),
        ("<p>Grüße</p>".encode(), "text/html; charset=no-such-thing"),
        ("<p>Grüße</p>".encode("utf-16"), "text/html"),
        ("<p>Grüße</p>".encode("cp1252"), "text/html"),
        ("Grüße".encode(), "text/plain"),
    ],
)
async def test_page_is_decoded_by_its_charset(server: WebServer, tool: WebFetch, body: bytes, media_type: str) -> None:
    assert await read(tool, server.serve("/", body, media_type)) == "Grüße"


async def test_charset_of_a_page_without_a_declaration_is_detected(server: WebServer, tool: WebFetch) -> None:
    head = f"<style>{'a' * 9_000}</style>"
    body = f"{head}<p>שלום עולם. היום מזג האוויר נעים מאוד.</p>".encode("cp1255")
    assert await read(tool, server.serve("/", body, "text/html")) == "שלום עולם. היום מזג האוויר נעים מאוד."


async def test_json_and_untyped_text_are_returned_unchanged(server: WebServer, tool: WebFetch) -> None:
    assert await read(tool, server.serve("/a", '{"a": [1]}', "application/vnd.api+json")) == '{"a": [1]}'
    assert await read(tool, server.serve("/b", "plain\nwords", "application/octet-stream")) == "plain\nwords"
    with pytest.raises(ToolFailed, match="image/png, which can't be read as text"):
        await read(tool, server.serve("/c", b"\x89PNG\0\0", "image/png"))


async def test_pdf_is_returned_as_text(server: WebServer, tool: WebFetch) -> None:
    text = await read(tool, server.serve("/a", pdf("Hello", "World"), "application/pdf"))
    assert text == "# Greetings\n\n[page 1]\nHello\n\n[page 2]\nWorld"
    with pytest.raises(ToolFailed, match="the document can't be read"):
        await read(tool, server.serve("/b", b"%PDF-1.4 broken", "application/pdf"))


async def test_pages_of_a_scanned_pdf_are_shown_as_images(server: WebServer, tmp_path: Path) -> None:
    tool = WebFetch(WebClient(allowed={server.authority}), tmp_path / "pages")
    output = await tool.run(WebFetchArguments(server.serve("/a", pdf("", ""), "application/pdf")), call_from(Path()))
    await tool.close()
    drawn = sorted((tmp_path / "pages").glob("*/page-*.png"))
    assert [image.source for image in output.images] == [str(file) for file in drawn]
    assert [file.read_bytes()[:4] for file in drawn] == [b"\x89PNG"] * 2
    assert f"picture of the page: {output.images[1].source}" in output.text


async def test_code_blocks_have_their_language_and_longer_fences(server: WebServer, tool: WebFetch) -> None:
    page = '<pre><code class="hljs language-python">a = "```"</code></pre><pre class="lang-c++">int a;</pre>'
    assert await read(tool, server.serve("/", page)) == '````python\na = "```"\n````\n\n```c++\nint a;\n```'


async def test_a_long_page_is_cut_at_the_end_of_a_line(server: WebServer, tool: WebFetch) -> None:
    line = "x" * 700 + "\n"
    first = await read(tool, server.serve("/", line * 40, "text/plain"))
    assert first.startswith(line * 28 + "\n\n[19628 of ")
    assert first.endswith("first_character=19629]")


async def test_office_document_is_returned_as_text(server: WebServer, tool: WebFetch, tmp_path: Path) -> None:
    document = WordDocument()
    document.add_paragraph("Hello")
    document.save(str(tmp_path / "a.docx"))
    url = server.serve("/plan.docx", (tmp_path / "a.docx").read_bytes(), "application/octet-stream")
    assert await read(tool, url) == "Hello"


async def test_long_page_is_continued_without_a_second_request(server: WebServer, tool: WebFetch) -> None:
    url = server.serve("/", "".join(f"{number:09}\n" for number in range(2_500)), "text/plain")
    first = await read(tool, url)
    assert first.endswith(f"[{PAGE_LENGTH} of 24999 characters; continue with first_character=20001]")
    assert await read(tool, url, 20_001) == "\n".join(f"{number:09}" for number in range(2_000, 2_500))
    assert len(server.requests) == 1
    with pytest.raises(ToolFailed, match="only 24999"):
        await read(tool, url, 30_000)


async def test_redirects_are_followed_up_to_the_limit(server: WebServer, tool: WebFetch) -> None:
    server.serve("/end", "arrived", "text/plain")
    for number in range(5):
        server.redirect(f"/{number}", f"/{number + 1}" if number < 4 else "end")
    assert await read(tool, server.url("/0")) == "arrived"
    server.redirect("/loop", "/loop")
    with pytest.raises(ToolFailed, match="more than 5 redirects"):
        await read(tool, server.url("/loop"))


async def test_compressed_page_beyond_the_size_limit_is_refused(server: WebServer, tool: WebFetch) -> None:
    packed = gzip.compress(b"a" * 1_000_000)
    assert len(packed) < 200_000
    url = server.serve("/", packed, "text/plain", **{"Content-Encoding": "gzip"})
    with pytest.raises(ToolFailed, match="larger than 200,000 bytes"):
        await read(tool, url)


async def test_endless_response_times_out(server: WebServer) -> None:
    async def forever(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.Event().wait()
        return response

    client = WebClient(allowed={server.authority}, time_limit=timedelta(milliseconds=200))
    with pytest.raises(ToolFailed, match=r"didn't answer within 0\.2 s"):
        await client.get(server.handle("/", forever))
    await client.close()


async def test_missing_and_empty_pages_are_reported(server: WebServer, tool: WebFetch) -> None:
    with pytest.raises(ToolFailed, match="404 Not Found"):
        await read(tool, server.url("/missing"))
    assert await read(tool, server.serve("/", "<p> </p>")) == "The page contains no text."


@pytest.mark.parametrize("tag", ["div", "span", "blockquote", "ul><li", "table><tr><td"])
async def test_deeply_nested_pages_are_read(server: WebServer, tool: WebFetch, tag: str) -> None:
    assert "deep" in await read(tool, server.serve("/", f"<{tag}>" * 400 + "deep"))


@pytest.mark.parametrize("piece", ["<ul><li>", "<div><p>", "<p><b id={}>", "<b id={}></q><p>", "<TABLE><td></i>"])
async def test_pages_nested_too_deeply_are_refused(server: WebServer, tool: WebFetch, piece: str) -> None:
    page = "".join(piece.format(number) for number in range(9_000))
    with pytest.raises(ToolFailed, match="nested too deeply"):
        await read(tool, server.serve("/", page))


async def test_long_flat_pages_with_tags_left_open_are_read(server: WebServer, tool: WebFetch) -> None:
    page = (
        "<script>'<b>'.repeat(9)" + "<b>" * 900 + "</script><ul>" + "<li>one<br>" * 900 + "</ul>" + "<p>two<hr>" * 900
    )
    text = await read(tool, server.serve("/", page))
    assert (text.count("- one"), text.count("two")) == (900, 900)


def test_parser_libraries_are_loaded_only_when_needed() -> None:
    script = (
        "import sys, talaria.tools.web.fetch, talaria.tools.web.search\n"
        "assert not {'aiohttp', 'selectolax', 'pypdfium2'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def pdf(*pages: str) -> bytes:
    """Return a PDF with a line on each page."""
    document = fpdf.FPDF()
    document.set_title("Greetings")
    document.set_font("helvetica", size=12)
    for line in pages:
        document.add_page()
        if line:
            document.cell(text=line)
    return bytes(document.output())
