"""Rules of robots.txt (RFC 9309) for one program. Imported with the first fetch."""

from collections.abc import Iterator
from urllib.parse import quote, unquote, urlsplit

from msgspec import Struct

AGENT = "talaria"
_MOST_LINES = 20_000
_SAFE = "/?=&%:@!$'()*+,;~"


class RobotsRule(Struct, frozen=True):
    """A path pattern, and whether it allows or forbids."""

    pattern: str
    allows: bool


class RobotsRules(Struct, frozen=True):
    """The rules of a server for this program; without any, everything is allowed."""

    rules: tuple[RobotsRule, ...] = ()

    def allow(self, url: str) -> bool:
        """Return whether a URL may be fetched: the longest matching pattern decides, and an equal one allows."""
        parts = urlsplit(url)
        path = _normalize(f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/")
        matching = [rule for rule in self.rules if _matches(rule.pattern, path)]
        best = max(matching, key=lambda rule: (len(rule.pattern), rule.allows), default=None)
        return best is None or best.allows


def parse_robots(text: str) -> RobotsRules:
    """Return the rules of all groups for this program, or else of those for all programs."""
    own: list[RobotsRule] = []
    general: list[RobotsRule] = []
    has_own, agents, is_open = False, set[str](), False
    for key, value in _iterate_lines(text):
        if key == "user-agent":
            agents = {*agents, value.lower()} if is_open else {value.lower()}
            is_open = True
            has_own = has_own or AGENT in agents
        elif key in {"allow", "disallow"}:
            is_open = False
            if value:
                rule = RobotsRule(_normalize(value), key == "allow")
                own += [rule] if AGENT in agents else []
                general += [rule] if "*" in agents else []
    return RobotsRules(tuple(own if has_own else general))


def _iterate_lines(text: str) -> Iterator[tuple[str, str]]:
    for line in text.removeprefix("\ufeff").splitlines()[:_MOST_LINES]:
        key, _, value = line.partition("#")[0].partition(":")
        yield key.strip().lower(), value.strip()


def _normalize(path: str) -> str:
    """Return a path or pattern in one form of percent-encoding."""
    return quote(unquote(path, errors="surrogateescape"), safe=_SAFE, errors="surrogateescape")


def _matches(pattern: str, path: str) -> bool:
    """Return whether a path begins with a pattern, in which ``*`` is any text and a final ``$`` the end."""
    is_whole = pattern.endswith("$")
    first, *others = pattern.removesuffix("$").split("*")
    if not path.startswith(first):
        return False
    place = len(first)
    for part in others:
        found = path.find(part, place)
        if found < 0:
            return False
        place = found + len(part)
    if not is_whole or place == len(path):
        return True
    last = others[-1] if others else None
    return last is not None and path.endswith(last) and len(path) - len(last) >= place - len(last)
