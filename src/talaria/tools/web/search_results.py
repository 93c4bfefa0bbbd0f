"""Parse DuckDuckGo's result page. Imported when one was fetched."""

from urllib.parse import parse_qs, urlsplit

from selectolax.lexbor import LexborHTMLParser, LexborNode

from talaria.tools.web.search import SearchResult


def list_results(html: str) -> list[SearchResult]:
    """Return the results on DuckDuckGo's plain page, without ads."""
    tree = LexborHTMLParser(html)
    found = (_result(node) for node in tree.css(".result") if "result--ad" not in (node.attributes.get("class") or ""))
    return [result for result in found if result is not None]


def has_captcha(html: str) -> bool:
    """Return whether the page asks for a captcha, by its elements: the query is part of every page."""
    marks = '.anomaly-modal__title, #challenge-form, form[action*="duckduckgo.com/anomaly"]'
    return LexborHTMLParser(html).css_first(marks) is not None


def _result(node: LexborNode) -> SearchResult | None:
    link = node.css_first("a.result__a")
    if link is None:
        return None
    url = _target(link.attributes.get("href") or "")
    return SearchResult(_words(link), url, _words(node.css_first(".result__snippet"))) if url else None


def _target(href: str) -> str:
    """Return the target of the engine's redirect."""
    try:
        url = urlsplit(href)
    except ValueError:
        return ""
    if url.path.startswith("/l/"):
        return next(iter(parse_qs(url.query).get("uddg", ())), "")
    return href if url.scheme in {"http", "https"} else ""


def _words(node: LexborNode | None) -> str:
    return " ".join(node.text().split()) if node is not None else ""
