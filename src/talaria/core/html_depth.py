"""Nesting depth of HTML, estimated before it is parsed: parsers take quadratic time for deep trees."""

import re

_TAG = re.compile(r"<(/?)([a-z][^\s/>]*)")
_TEXT_ONLY = {"script", "style", "textarea", "title", "xmp", "noframes"}
_VOID = {
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr",
}  # fmt: skip
_OFTEN_LEFT_OPEN = {
    "html", "head", "body", "p", "li", "dt", "dd", "option", "optgroup", "colgroup", "caption", "thead", "tbody",
    "tfoot", "tr", "td", "th", "rt", "rp",
}  # fmt: skip


def is_nested_deeper(html: str, limit: int) -> bool:
    """Return whether more elements than this are ever open at once, judging by their tags."""
    text = html.lower()
    still_open: dict[str, int] = {}
    depth = place = 0
    while found := _TAG.search(text, place):
        closing, name = found.groups()
        place = found.end()
        if name in _VOID or name in _OFTEN_LEFT_OPEN:
            continue
        if not closing and name in _TEXT_ONLY:
            place = text.find(f"</{name}", place) + 1 or len(text)
            continue
        # A closing tag of an element that isn't open closes nothing, and must not hide one that is.
        before = still_open.get(name, 0)
        still_open[name] = max(0, before - 1) if closing else before + 1
        depth += still_open[name] - before
        if depth > limit:
            return True
    return False
