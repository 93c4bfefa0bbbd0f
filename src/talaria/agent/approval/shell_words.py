"""Take a shell command apart as a shell would: quotes, escapes, substitutions, operators."""

import re
from collections.abc import Iterator

from msgspec import Struct

OPERATORS = ("&&", "||", "|&", ";;", ";", "&", "|", "(", ")", "\n")
_REDIRECT = re.compile(r"(?:\d*|&)(<<<|<<-|<<|>>|>\||<>|>&|<&|>|<)")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\}|\{[^}]*\}|[@*#?$!-])")
_ANSI = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "\\": "\\", "'": "'", '"': '"', "0": "\0"}


class Word(Struct, frozen=True):
    """A word behind quotes and escapes; ``{name}`` variables are still in it, as `VARIABLE` marks them.

    ``inner`` are the commands inside ``$(…)``, backquotes and ``<(…)``; what they print is unknown.
    """

    text: str
    inner: tuple[str, ...] = ()
    quoted: bool = False

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the variables in it; ``""`` for what has no plain name."""
        return tuple(re.findall(f"{VARIABLE}(\\w*){VARIABLE}", self.text))


class Operator(Struct, frozen=True):
    """What stands between commands."""

    text: str


class Redirect(Struct, frozen=True):
    """Where input comes from or output goes to; for a here-document ``target`` is its text."""

    text: str
    target: Word


Token = Word | Operator | Redirect
_DEEPEST = 20
VARIABLE = "\x1a"
UNKNOWN = "\x1b"


def tokens(command: str) -> Iterator[Token]:
    """Yield the tokens of a command, best effort: what a shell would refuse is read as far as it goes."""
    return _Reader(command).tokens()


class _Reader:
    def __init__(self, text: str, depth: int = 0) -> None:
        self._text = text
        self._depth = depth
        self._at = 0
        self._waiting: list[str] = []

    def tokens(self) -> Iterator[Token]:
        while self._skip_blanks():
            redirect = _REDIRECT.match(self._text, self._at)
            if redirect and not self._text.startswith(("<(", ">("), redirect.end() - 1):
                yield self._redirect(redirect)
                continue
            operator = next((one for one in OPERATORS if self._text.startswith(one, self._at)), None)
            if operator is None:
                yield self._word()
                continue
            self._at += len(operator)
            if operator == "\n" and self._waiting:
                yield from self._here_documents()
            yield Operator(operator)

    def _skip_blanks(self) -> bool:
        while self._at < len(self._text):
            if self._text.startswith("\\\n", self._at):
                self._at += 2
            elif self._text[self._at] in " \t\r":
                self._at += 1
            elif self._text[self._at] == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            else:
                return True
        return False

    def _redirect(self, found: re.Match[str]) -> Redirect:
        self._at = found.end()
        while self._text[self._at : self._at + 1] in (" ", "\t"):
            self._at += 1
        target = self._word() if self._at < len(self._text) else Word("")
        if found[1] in ("<<", "<<-"):
            self._waiting.append(target.text)
        return Redirect(found[1], target)

    def _here_documents(self) -> Iterator[Redirect]:
        for end in self._waiting:
            body = re.compile(rf"(.*?)^\t*{re.escape(end)}$\n?", re.DOTALL | re.MULTILINE).match(self._text, self._at)
            text = body[1] if body else self._text[self._at :]
            self._at = body.end() if body else len(self._text)
            yield Redirect("<<body", Word(text, quoted=True))
        self._waiting.clear()

    def _word(self) -> Word:
        text, inner, quoted, start = "", [], False, self._at
        while self._at < len(self._text) and not self._ends_word(start):
            piece, commands, is_quoted = self._piece()
            text += piece
            inner += commands
            quoted = quoted or is_quoted
        if self._at == start:
            self._at += 1
        return Word(text, tuple(inner), quoted)

    def _ends_word(self, start: int) -> bool:
        character = self._text[self._at]
        if character in "<>" and self._text.startswith("(", self._at + 1):
            return self._at != start
        return character in " \t\r\n;&|()<>"

    def _piece(self) -> tuple[str, list[str], bool]:
        character = self._text[self._at]
        if character == "'":
            return self._until("'", self._at + 1), [], True
        if self._text.startswith("$'", self._at):
            return self._ansi(), [], True
        if character == '"' or self._text.startswith('$"', self._at):
            self._at += 1 if character == '"' else 2
            return self._double_quoted()
        if character == "\\":
            self._at += 2
            return self._text[self._at - 1 : self._at].replace("\n", ""), [], True
        return (*self._expansion_or_character(), False)

    def _until(self, end: str, start: int) -> str:
        found = self._text.find(end, start)
        found = len(self._text) if found < 0 else found
        self._at = found + len(end)
        return self._text[start:found]

    def _ansi(self) -> str:
        found = re.compile(r"\$'((?:[^'\\]|\\.)*)'?", re.DOTALL).match(self._text, self._at)
        assert found is not None
        self._at = found.end()
        return re.sub(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|[0-7]{1,3}|.)", _unescaped, found[1], flags=re.DOTALL)

    def _double_quoted(self) -> tuple[str, list[str], bool]:
        text, inner = "", []
        while self._at < len(self._text) and self._text[self._at] != '"':
            if self._text[self._at] == "\\":
                following = self._text[self._at + 1 : self._at + 2]
                text += following if following in '$`"\\' else "" if following == "\n" else "\\" + following
                self._at += 2
                continue
            piece, commands = self._expansion_or_character()
            text += piece
            inner += commands
        self._at += 1
        return text, inner, True

    def _expansion_or_character(self) -> tuple[str, list[str]]:
        if self._text.startswith("$((", self._at):
            self._until("))", self._at)
            return UNKNOWN, []
        if self._text.startswith(("$(", "<(", ">("), self._at):
            return UNKNOWN, [self._parenthesised()]
        if self._text[self._at] == "`":
            return UNKNOWN, [self._until("`", self._at + 1).replace("\\`", "`")]
        variable = _VARIABLE.match(self._text, self._at)
        if variable:
            self._at = variable.end()
            return f"{VARIABLE}{variable[1] or variable[2] or ''}{VARIABLE}", []
        self._at += 1
        return self._text[self._at - 1], []

    def _parenthesised(self) -> str:
        """Return what stands between the parentheses that begin here, quotes and nesting respected."""
        start = self._at + 2
        if self._depth == _DEEPEST:
            return self._until(")", start)
        inside = _Reader(self._text[start:], self._depth + 1)
        depth = 1
        for token in inside.tokens():
            if isinstance(token, Operator) and token.text in "()":
                depth += 1 if token.text == "(" else -1
            if depth == 0:
                break
        self._at = start + inside._at
        return self._text[start : self._at - (depth == 0)]


def _unescaped(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] in "xu" and len(code) > 1:
        return chr(int(code[1:], 16))
    if code[0] in "01234567":
        return chr(int(code, 8))
    return _ANSI.get(code, "\\" + code)
