"""Syntax highlighting line by line, with a lexer that keeps its state between lines."""

import re
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Any

from talaria.cli.markdown.styled_text import StyledLine, Theme
from talaria.core.lazy import load_module

_LONGEST_LINE = 300  # characters; a lexer takes about 5 ms for the densest lines
_CONTEXT_CHARACTERS = 2048  # visible to look-behind patterns
# Tokens that some lexers match only as a whole: until the end arrives, the lines so far are coloured as if it had.
_PAIRS = {"/*": "*/", "<!--": "-->", '"""': '"""', "'''": "'''", "`": "`", "--[[": "]]", "{-": "-}", "<#": "#>"}
_FIND_BEGINNING = re.compile("|".join(map(re.escape, _PAIRS)))
_MAX_IDLE_STEPS = 200


class Highlighter:
    """Highlighter of one code block; the colours of a line do not depend on later lines."""

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
        # Resolved with the first line: a partly streamed name may look like another language.
        return _make_lexer(self._language)

    def copy(self) -> "Highlighter":
        """Return an independent copy."""
        other = Highlighter.__new__(Highlighter)
        other.__dict__.update(self.__dict__, _stack=list(self._stack))
        if self._context is not None:
            other.__dict__["_context"] = _copy_context(self._context)
        return other

    def highlight_line(self, text: str) -> StyledLine:
        """Return the next line, given without its line break, with colours."""
        if self._lexer is None:
            return [(text, self._theme.code)]
        if len(text) > _LONGEST_LINE:
            return [(text, "")]
        style_of = _load_styles(self._theme)
        line = [(part, style_of(kind)) for kind, part in self._split_tokens(text + "\n") if part]
        whole = "".join(part for part, _ in line) == text
        return line if whole else [(text, "")]  # some lexers drop text they don't recognise

    def _split_tokens(self, line: str) -> Iterator[tuple[Any, str]]:
        from pygments.lexer import ExtendedRegexLexer, RegexLexer  # type: ignore[import-untyped]  # noqa: PLC0415 (loaded with the first code block)

        if isinstance(self._lexer, ExtendedRegexLexer):
            found = self._resume_context(line)
        elif isinstance(self._lexer, RegexLexer):
            found = self._resume(line)
        else:
            found = ((kind, part) for _, kind, part in self._lexer.get_tokens_unprocessed(line))
        return ((kind, part.replace("\n", "")) for kind, part in found)

    def _resume_context(self, line: str) -> Iterator[tuple[Any, str]]:
        context = self._context
        if context is None:
            from pygments.lexer import LexerContext  # noqa: PLC0415 (loaded with the first code block)

            module = load_module(type(self._lexer).__module__)
            context = getattr(module, f"{type(self._lexer).__name__}Context", LexerContext)(line, 0)
        else:
            tail = context.text[max(0, context.pos - _CONTEXT_CHARACTERS) :]
            context.pos -= len(context.text) - len(tail)
            context.text = tail + line
            context.end = len(context.text)
        begin = len(context.text) - len(line)
        self._context = None
        for at, kind, part in self._lexer.get_tokens_unprocessed(context=context):
            # At the end of its text a lexer leaves all states: continue from before the last token, not from there.
            if self._context is None and at + len(part) >= context.end and context.end - at < _CONTEXT_CHARACTERS:
                self._context = _copy_context(context)
            yield kind, part[max(0, begin - at) :]
        self._context = self._context or context

    def _resume(self, line: str) -> Iterator[tuple[Any, str]]:
        if self._at > 2 * _CONTEXT_CHARACTERS:
            self._text = self._text[self._at - _CONTEXT_CHARACTERS :]
            self._at = _CONTEXT_CHARACTERS
        self._text += line
        if self._open is not None:
            kind, end = self._open
            position = self._text.find(end, self._at)
            stop = len(self._text) if position < 0 else position + len(end)
            yield kind, self._text[self._at : stop]
            self._at = stop
            if position < 0:
                return
            self._open = None
        yield from self._lex(may_stay_open=_FIND_BEGINNING.search(line) is not None)

    def _lex(self, *, may_stay_open: bool) -> Iterator[tuple[Any, str]]:
        """Lex like `RegexLexer`, but keep position and states for the next line."""
        text, idle = self._text, 0
        while self._at < len(text):
            if may_stay_open and (kind := self._stays_open()):
                yield kind, text[self._at :]
                self._at = len(text)
                return
            step = self._match(text)
            idle = idle + 1 if step and step[0].end() == self._at else 0
            if step is None or idle > _MAX_IDLE_STEPS:
                yield self._skip_character(text[self._at])
                continue
            match, action, state = step
            if callable(action):
                yield from ((kind, part) for _, kind, part in action(self._lexer, match))
            elif action is not None:
                yield action, match[0]
            self._at = match.end()
            self._change_state(state)

    def _match(self, text: str) -> tuple[re.Match[str], Any, Any] | None:
        for matches, action, state in self._lexer._tokens[self._stack[-1]]:  # noqa: SLF001 - the compiled rules have no public name
            if match := matches(text, self._at):
                return match, action, state
        return None

    def _stays_open(self) -> Any:
        """Return the type of a token that starts here without an end yet, if any."""
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

    def _skip_character(self, character: str) -> tuple[Any, str]:
        from pygments.token import Error, Whitespace  # type: ignore[import-untyped]  # noqa: PLC0415 (loaded with the first code block)

        self._at += 1
        if character != "\n":
            return Error, character
        self._stack = ["root"]
        return Whitespace, character

    def _change_state(self, state: Any) -> None:
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


def preload_highlighting(theme: Theme, *languages: str) -> None:
    """Load these languages in advance, so that the first code line is fast; may run in a thread."""
    _load_styles(theme)
    for language in languages:
        _make_lexer(language)


@lru_cache(maxsize=1)
def _list_lexer_names() -> dict[str, str]:
    from pygments.lexers import get_all_lexers  # type: ignore[import-untyped]  # noqa: PLC0415 (loaded with the first code block)

    return {alias: name for name, aliases, _, _ in get_all_lexers(plugins=False) for alias in aliases}


@lru_cache(maxsize=64)
def _make_lexer(language: str) -> Any:
    """Return the lexer of this name, or ``None``; plug-ins are skipped, because finding them reads the disk."""
    if not language or language in {"text", "txt", "plain", "plaintext", "output"}:
        return None
    from pygments.lexers import find_lexer_class  # noqa: PLC0415 (loaded with the first code block)

    name = _list_lexer_names().get(language)
    return find_lexer_class(name)() if name else None


@lru_cache(maxsize=8)
def _load_styles(theme: Theme) -> Any:
    """Return a function from token types to styles."""
    from pygments.styles import get_style_by_name  # type: ignore[import-untyped]  # noqa: PLC0415 (loaded with the first code block)
    from pygments.token import Error, Generic, Text, Token, Whitespace  # noqa: PLC0415 (loaded with the first code block)

    token_styles = dict(get_style_by_name(theme.pygments))
    ordinary = token_styles[Token]["color"]
    changes = {Generic.Inserted: theme.added, Generic.Deleted: theme.removed}

    @lru_cache(maxsize=256)
    def style_of(kind: Any) -> str:
        if kind in Whitespace or kind is Error or kind is Text:
            return ""
        if kind in changes:
            return changes[kind]
        while kind not in token_styles:
            kind = kind.parent
        look = token_styles[kind]
        numbers = [number for key, number in (("bold", "1"), ("italic", "3"), ("underline", "4")) if look[key]]
        if look["color"] and look["color"] != ordinary:
            numbers.append(f"38;5;{find_nearest_color(look['color'])}")
        return ";".join(numbers)

    return style_of


def find_nearest_color(color: str) -> int:
    """Return the nearest of the terminal's 256 colours for six hexadecimal digits."""
    rgb = tuple(int(color[i : i + 2], 16) for i in (0, 2, 4))
    steps = (0, 95, 135, 175, 215, 255)
    cube = [min(range(6), key=lambda i: abs(steps[i] - value)) for value in rgb]
    grey = min(range(24), key=lambda i: abs(8 + 10 * i - sum(rgb) / 3))
    found = {
        16 + 36 * cube[0] + 6 * cube[1] + cube[2]: tuple(steps[i] for i in cube),
        232 + grey: (8 + 10 * grey,) * 3,
    }
    return min(found, key=lambda number: sum((a - b) ** 2 for a, b in zip(found[number], rgb, strict=True)))


def _copy_context(context: Any) -> Any:
    other = object.__new__(type(context))
    other.__dict__.update(
        {name: list(value) if isinstance(value, list) else value for name, value in vars(context).items()}
    )
    return other
