"""Code with its colours, line by line: a lexer that goes on where the line before left it."""

import re
from collections.abc import Iterator
from functools import cached_property, lru_cache
from importlib import import_module
from typing import Any

from talaria.cli.rendering.runs import Line
from talaria.cli.rendering.themes import Theme

_LONGEST_LINE = 300  # a lexer takes about 5 ms for the densest of them
_KEPT = 2048  # what patterns that look behind may see
# What some lexers match only as a whole: while its end has not come, the lines so far are coloured as if it had.
_PAIRS = {"/*": "*/", "<!--": "-->", '"""': '"""', "'''": "'''", "`": "`", "--[[": "]]", "{-": "-}", "<#": "#>"}
_FIND_BEGINNING = re.compile("|".join(map(re.escape, _PAIRS)))
_ENDLESS = 200


class Highlighter:
    """A piece of code in one language, from its first line on. Colours of a line do not depend on what follows it."""

    def __init__(self, language: str, theme: Theme) -> None:
        self._theme = theme
        self._language = language.lower()
        self._text = ""
        self._at = 0
        self._stack = ["root"]
        self._open: tuple[Any, str] | None = None
        self._context: Any = None

    @cached_property
    def _lexer(self) -> Any:
        # Not before the first line: while its name arrives, a language may look like another.
        return _lexer(self._language)

    def copy(self) -> "Highlighter":
        """Return one that goes on from here by itself."""
        other = Highlighter.__new__(Highlighter)
        other.__dict__.update(self.__dict__, _stack=list(self._stack))
        if self._context is not None:
            other.__dict__["_context"] = _copied(self._context)
        return other

    def line(self, text: str) -> Line:
        """Return the next line, which is without its line break, in its colours."""
        if self._lexer is None:
            return [(text, self._theme.code)]
        if len(text) > _LONGEST_LINE:
            return [(text, "")]
        style_of = _styles(self._theme)
        line = [(part, style_of(kind)) for kind, part in self._tokens(text + "\n") if part]
        whole = "".join(part for part, _ in line) == text
        return line if whole else [(text, "")]  # some lexers drop what they do not understand

    def _tokens(self, line: str) -> Iterator[tuple[Any, str]]:
        rules = import_module("pygments.lexer")
        if isinstance(self._lexer, rules.ExtendedRegexLexer):
            found = self._resume_context(line)
        elif isinstance(self._lexer, rules.RegexLexer):
            found = self._resume(line)
        else:
            found = ((kind, part) for _, kind, part in self._lexer.get_tokens_unprocessed(line))
        return ((kind, part.replace("\n", "")) for kind, part in found)

    def _resume_context(self, line: str) -> Iterator[tuple[Any, str]]:
        context = self._context
        if context is None:
            module = import_module(type(self._lexer).__module__)
            plain = import_module("pygments.lexer").LexerContext
            context = getattr(module, f"{type(self._lexer).__name__}Context", plain)(line, 0)
        else:
            kept = context.text[max(0, context.pos - _KEPT) :]
            context.pos -= len(context.text) - len(kept)
            context.text = kept + line
            context.end = len(context.text)
        begin = len(context.text) - len(line)
        self._context = None
        for at, kind, part in self._lexer.get_tokens_unprocessed(context=context):
            # At the end of its text a lexer leaves all states: go on from before the last token, not from there.
            if self._context is None and at + len(part) >= context.end and context.end - at < _KEPT:
                self._context = _copied(context)
            yield kind, part[max(0, begin - at) :]
        self._context = self._context or context

    def _resume(self, line: str) -> Iterator[tuple[Any, str]]:
        if self._at > 2 * _KEPT:
            self._text = self._text[self._at - _KEPT :]
            self._at = _KEPT
        self._text += line
        if self._open is not None:
            kind, end = self._open
            place = self._text.find(end, self._at)
            stop = len(self._text) if place < 0 else place + len(end)
            yield kind, self._text[self._at : stop]
            self._at = stop
            if place < 0:
                return
            self._open = None
        yield from self._lex(may_stay_open=_FIND_BEGINNING.search(line) is not None)

    def _lex(self, *, may_stay_open: bool) -> Iterator[tuple[Any, str]]:
        """Do what `RegexLexer` does with a whole text, but keep its place and its states for the next line."""
        text, idle = self._text, 0
        while self._at < len(text):
            if may_stay_open and (kind := self._stays_open()):
                yield kind, text[self._at :]
                self._at = len(text)
                return
            step = self._match(text)
            idle = idle + 1 if step and step[0].end() == self._at else 0
            if step is None or idle > _ENDLESS:
                yield self._stray(text[self._at])
                continue
            match, action, state = step
            if callable(action):
                yield from ((kind, part) for _, kind, part in action(self._lexer, match))
            elif action is not None:
                yield action, match[0]
            self._at = match.end()
            self._change(state)

    def _match(self, text: str) -> tuple[re.Match[str], Any, Any] | None:
        for matches, action, state in self._lexer._tokens[self._stack[-1]]:  # noqa: SLF001 - the compiled rules have no public name
            if match := matches(text, self._at):
                return match, action, state
        return None

    def _stays_open(self) -> Any:
        """Return the kind of token that begins here and has no end yet, if there is one."""
        begin = _FIND_BEGINNING.match(self._text, self._at)
        if begin is None:
            return None
        end = _PAIRS[begin[0]]
        if self._text.find(end, begin.end()) >= 0:
            return None
        ended = self._text + end
        step = self._match(ended)
        if step is None or step[0].end() != len(ended) or callable(step[1]) or step[1] is None:
            return None
        self._open = (step[1], end)
        return step[1]

    def _stray(self, character: str) -> tuple[Any, str]:
        self._at += 1
        token = import_module("pygments.token")
        if character != "\n":
            return token.Error, character
        self._stack = ["root"]
        return token.Whitespace, character

    def _change(self, state: Any) -> None:
        if state is None:
            return
        if isinstance(state, int):
            del self._stack[max(1, len(self._stack) + state) :]
            return
        for name in state if isinstance(state, tuple) else (state,):
            if name != "#pop":
                self._stack.append(self._stack[-1] if name == "#push" else name)
            elif len(self._stack) > 1:
                self._stack.pop()


def prepare(theme: Theme, *languages: str) -> None:
    """Load what these languages need, so that the first line of code does not wait for it; fit for a thread."""
    _styles(theme)
    for language in languages:
        _lexer(language)


@lru_cache(maxsize=1)
def _names() -> dict[str, str]:
    lexers = import_module("pygments.lexers")
    return {alias: name for name, aliases, _, _ in lexers.get_all_lexers(plugins=False) for alias in aliases}


@lru_cache(maxsize=64)
def _lexer(language: str) -> Any:
    """Return the lexer of this name, or nothing. Plug-ins are not looked for: that would read the disk."""
    if not language or language in {"text", "txt", "plain", "plaintext", "output"}:
        return None
    name = _names().get(language)
    return import_module("pygments.lexers").find_lexer_class(name)() if name else None


@lru_cache(maxsize=8)
def _styles(theme: Theme) -> Any:
    """Return a function from a kind of token to its style."""
    style = import_module("pygments.styles").get_style_by_name(theme.pygments)
    token = import_module("pygments.token")
    looks = dict(style)
    ordinary = looks[token.Token]["color"]
    changes = {token.Generic.Inserted: theme.added, token.Generic.Deleted: theme.removed}

    @lru_cache(maxsize=256)
    def style_of(kind: Any) -> str:
        if kind in token.Whitespace or kind is token.Error or kind is token.Text:
            return ""
        if kind in changes:
            return changes[kind]
        while kind not in looks:
            kind = kind.parent
        look = looks[kind]
        numbers = [number for key, number in (("bold", "1"), ("italic", "3"), ("underline", "4")) if look[key]]
        if look["color"] and look["color"] != ordinary:
            numbers.append(f"38;5;{nearest_color(look['color'])}")
        return ";".join(numbers)

    return style_of


def nearest_color(color: str) -> int:
    """Return the number, of the 256 that terminals have, that comes nearest to six hexadecimal digits."""
    wanted = tuple(int(color[i : i + 2], 16) for i in (0, 2, 4))
    steps = (0, 95, 135, 175, 215, 255)
    place = [min(range(6), key=lambda i: abs(steps[i] - value)) for value in wanted]
    grey = min(range(24), key=lambda i: abs(8 + 10 * i - sum(wanted) / 3))
    found = {
        16 + 36 * place[0] + 6 * place[1] + place[2]: tuple(steps[i] for i in place),
        232 + grey: (8 + 10 * grey,) * 3,
    }
    return min(found, key=lambda number: sum((a - b) ** 2 for a, b in zip(found[number], wanted, strict=True)))


def _copied(context: Any) -> Any:
    other = object.__new__(type(context))
    other.__dict__.update(
        {name: list(value) if isinstance(value, list) else value for name, value in vars(context).items()}
    )
    return other
