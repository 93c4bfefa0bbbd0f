"""HTML pages as light Markdown, and the results of DuckDuckGo's page. Imported when a page was fetched."""

import re
from collections.abc import Iterator
from urllib.parse import parse_qs, urljoin, urlsplit

from selectolax.lexbor import LexborHTMLParser, LexborNode

from talaria.core.errors import ToolFailed
from talaria.core.text_formats import is_nested_deeper
from talaria.tools.web.search import SearchResult

_NOISE = (
    "script, style, noscript, template, svg, canvas, iframe, object, nav, footer, dialog, select, button, textarea,"
    ' [hidden], [aria-hidden="true"], [role="navigation"], [role="contentinfo"], [role="banner"]'
)
_LANGUAGE = re.compile(r"\b(?:lang|language|highlight-source)-([\w+#.-]{1,30})")
_TICKS = re.compile(r"`+")
_HIDDEN = re.compile(r"(display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
_INLINE = {
    "a", "abbr", "b", "bdi", "bdo", "br", "cite", "code", "data", "del", "dfn", "em", "font", "i", "img", "ins", "kbd",
    "label", "mark", "q", "ruby", "rt", "s", "samp", "small", "span", "strong", "sub", "sup", "time", "tt", "u", "var",
    "wbr",
}  # fmt: skip
_BLOCKS = "p, div, section, article, ul, ol, table, pre, blockquote, h1, h2, h3, h4, h5, h6"
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_DEEPEST_PAGE = 500  # the limit of browsers; deeper pages are made to do harm
_DEEPEST = 120
_ENOUGH = 250  # characters that make a main element preferable to the whole page


def extract_page_text(html: str, url: str) -> str:
    """Return the title and the readable part of a page; links are made absolute."""
    if is_nested_deeper(html, _DEEPEST_PAGE):
        raise ToolFailed("the page is nested too deeply to read")
    tree = LexborHTMLParser(html)
    title = _extract_text(tree.css_first("title"))
    if tree.body is None:
        return title
    for node in tree.css(_NOISE):
        node.decompose()
    for node in tree.css("[style]"):
        if _HIDDEN.search(node.attributes.get("style") or ""):
            node.decompose()
    blocks = [block for block in _Renderer(url).render_blocks(_find_main_part(tree.body), 0) if block.strip()]
    if title and not any(block.startswith("# ") and block[2:] in title for block in blocks[:3]):
        blocks.insert(0, f"# {title}")
    return "\n\n".join(blocks)


class _Renderer:
    def __init__(self, url: str) -> None:
        self._url = url

    def render_blocks(self, node: LexborNode, depth: int) -> Iterator[str]:
        """Yield the blocks in a node; text between them becomes paragraphs."""
        if depth > _DEEPEST:
            yield _extract_text(node)
            return
        loose: list[str] = []
        for child in node.iter(include_text=True):
            if child.is_text_node or _is_inline(child):
                loose.append(self._render_inline(child, depth))
                continue
            yield _tidy_lines(loose)
            loose.clear()
            yield from self._render_block(child, depth + 1)
        yield _tidy_lines(loose)

    def _render_block(self, node: LexborNode, depth: int) -> Iterator[str]:
        tag = node.tag or ""
        if tag in _HEADINGS:
            yield f"{'#' * _HEADINGS[tag]} {_tidy_lines([self._render_inline(node, depth)], ' ')}"
        elif tag == "pre":
            yield _render_code(node)
        elif tag in {"ul", "ol"}:
            yield "\n".join(self._render_items(node, depth, numbered=tag == "ol"))
        elif tag == "blockquote":
            quoted = "\n\n".join(filter(None, self.render_blocks(node, depth)))
            yield "\n".join(f"> {line}".rstrip() for line in quoted.splitlines())
        elif tag == "table" and not node.css("table table"):
            yield "\n".join(self._render_rows(node, depth))
        elif tag == "hr":
            yield "---"
        else:
            yield from self.render_blocks(node, depth)

    def _render_items(self, node: LexborNode, depth: int, *, numbered: bool) -> Iterator[str]:
        number = 0
        for child in node.iter():
            text = "\n".join(filter(None, self.render_blocks(child, depth)))
            if text:
                number += 1
                mark = f"{number}. " if numbered else "- "
                yield mark + text.replace("\n", "\n" + " " * len(mark))

    def _render_rows(self, table: LexborNode, depth: int) -> Iterator[str]:
        rows = [[self._render_cell(cell, depth) for cell in row.css("th, td")] for row in table.css("tr")]
        rows = [row for row in rows if any(row)]
        if rows and max(map(len, rows)) == 1:
            yield from (row[0] for row in rows)
            return
        for number, row in enumerate(rows):
            yield f"| {' | '.join(row)} |"
            if number == 0:
                yield "|" + " --- |" * len(row)

    def _render_cell(self, node: LexborNode, depth: int) -> str:
        return " ".join(" ".join(self.render_blocks(node, depth)).split()).replace("|", "\\|")

    def _render_inline(self, node: LexborNode, depth: int) -> str:
        if node.is_text_node:
            return re.sub(r"\s+", " ", node.text())
        if node.tag == "br":
            return "\n"
        if node.tag == "img":
            alt = " ".join((node.attributes.get("alt") or "").split())
            return f"[image: {alt}]" if alt else ""
        if depth > _DEEPEST:
            return _extract_text(node)
        inner = "".join(self._render_inline(child, depth + 1) for child in node.iter(include_text=True))
        if node.tag == "code" and inner.strip():
            return f"`{inner.strip()}`"
        return self._render_link(node, inner) if node.tag == "a" else inner

    def _render_link(self, node: LexborNode, text: str) -> str:
        words = " ".join(text.split())
        href = (node.attributes.get("href") or "").strip()
        if not words or not href or href.startswith(("#", "javascript:", "data:")):
            return text
        try:
            return f"[{words}]({urljoin(self._url, href)})"
        except ValueError:
            return text


def _render_code(node: LexborNode) -> str:
    """Return a block of code between fences that it doesn't contain, with its language if the page names one."""
    text = node.text().strip("\n")
    inner = node.css_first("code")
    classes = " ".join(one.attributes.get("class") or "" for one in (node, inner) if one is not None)
    language = _LANGUAGE.search(classes)
    fence = "`" * max(3, 1 + max(map(len, _TICKS.findall(text)), default=0))
    return f"{fence}{language[1] if language else ''}\n{text}\n{fence}"


def _find_main_part(body: LexborNode) -> LexborNode:
    for selector in ("main", '[role="main"]', "article"):
        found = body.css(selector)
        if len(found) == 1 and len(_extract_text(found[0])) >= _ENOUGH:
            return found[0]
    return body


def _is_inline(node: LexborNode) -> bool:
    if not node.is_element_node:
        return True
    if node.tag not in _INLINE:
        return False
    return node.tag == "a" or next(iter(node.iter()), None) is None or node.css_first(_BLOCKS) is None


def _tidy_lines(pieces: list[str], line_break: str = "\n") -> str:
    lines = (" ".join(line.split()) for line in "".join(pieces).splitlines())
    return line_break.join(filter(None, lines))


def _extract_text(node: LexborNode | None) -> str:
    return " ".join(node.text(separator=" ").split()) if node is not None else ""


def list_results(html: str) -> list[SearchResult]:
    """Return the results on DuckDuckGo's plain page, without ads."""
    tree = LexborHTMLParser(html)
    found = (
        _read_result(node) for node in tree.css(".result") if "result--ad" not in (node.attributes.get("class") or "")
    )
    return [result for result in found if result is not None]


def has_captcha(html: str) -> bool:
    """Return whether the page asks for a captcha, by its elements: the query is part of every page."""
    marks = '.anomaly-modal__title, #challenge-form, form[action*="duckduckgo.com/anomaly"]'
    return LexborHTMLParser(html).css_first(marks) is not None


def _read_result(node: LexborNode) -> SearchResult | None:
    link = node.css_first("a.result__a")
    if link is None:
        return None
    url = _resolve_redirect(link.attributes.get("href") or "")
    return (
        SearchResult(_extract_unspaced_text(link), url, _extract_unspaced_text(node.css_first(".result__snippet")))
        if url
        else None
    )


def _resolve_redirect(href: str) -> str:
    """Return the target of the engine's redirect."""
    try:
        url = urlsplit(href)
    except ValueError:
        return ""
    if url.path.startswith("/l/"):
        return next(iter(parse_qs(url.query).get("uddg", ())), "")
    return href if url.scheme in {"http", "https"} else ""


def _extract_unspaced_text(node: LexborNode | None) -> str:
    return " ".join(node.text().split()) if node is not None else ""
