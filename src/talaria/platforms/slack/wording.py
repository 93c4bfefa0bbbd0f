"""The texts that people write in Slack, as Markdown: Slack marks links, names and channels with angle brackets."""

import re
from collections.abc import Mapping

_BRACKETS = re.compile(r"<([^<>\n]+)>")
_MENTION = re.compile(r"<@([UW][A-Z0-9]+)(?:\|[^<>]*)?>")
_BEHIND_A_NAME = re.compile(r"^[\s,:;]+")
_SIGNS = (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&"))


def mentioned(text: str) -> list[str]:
    """Return the ids of those who are named in a text."""
    return _MENTION.findall(text)


def read_text(text: str, names: Mapping[str, str], us: str) -> str:
    """Return a text as people see it; ``names`` are those of the people in it. ``us``, in front, is left out."""
    first = _MENTION.match(text.lstrip())
    if first is not None and first[1] == us:
        rest = _BEHIND_A_NAME.sub("", text.lstrip()[first.end() :])
        text = rest or text
    return _plain(_BRACKETS.sub(lambda found: _shown(found[1], names), text)).strip()


def escape(text: str) -> str:
    """Return a text in which nothing means anything to Slack that is not meant to."""
    for sign in reversed(_SIGNS):
        text = text.replace(sign[1], sign[0])
    return text


def _plain(text: str) -> str:
    for written, sign in _SIGNS:
        text = text.replace(written, sign)
    return text


def _shown(inside: str, names: Mapping[str, str]) -> str:
    target, _, label = inside.partition("|")
    match target[0]:
        case "@":
            return f"@{label or names.get(target[1:]) or target[1:]}"
        case "#":
            return f"#{label or target[1:]}"
        case "!":
            return label or f"@{target[1:].partition('^')[0]}"
        case _:
            address = target.removeprefix("mailto:")
            return address if label in ("", address, target) else f"[{label}]({target})"
