"""The simple commands of a shell line, those inside others included."""

import re
from collections.abc import Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from talaria.agent.approval.shell_words import UNKNOWN, VARIABLE, Operator, Redirect, Word, tokens

_ASSIGNMENT = re.compile(r"(\w+)\+?=(.*)", re.DOTALL)
_KEYWORDS = {
    "if",
    "then",
    "else",
    "elif",
    "do",
    "while",
    "until",
    "!",
    "{",
    "}",
    "time",
    "coproc",
    "fi",
    "done",
    "esac",
}
_BRACES = re.compile(r"\{([^{}\s]*,[^{}\s]*)\}")
_MOST_WORDS = 64
_REFERENCE = re.compile(f"{VARIABLE}(\\w*){VARIABLE}")


class SimpleCommand(Struct, frozen=True):
    """A program with its words, as they are after variables that are set in the same line.

    ``before`` is the command whose output it reads; a word with `UNKNOWN` in it depends on what is not known here.
    """

    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...] = ()
    before: "SimpleCommand | None" = None

    @property
    def program(self) -> str:
        """The name of the program, without its folder."""
        return self.words[0].text.rpartition("/")[2] if self.words else ""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The words behind the program."""
        return tuple(word.text for word in self.words[1:])

    @property
    def text(self) -> str:
        """The command in short, for a person."""
        return " ".join(word.text.replace(UNKNOWN, "…") for word in self.words)[:120]


class Line(Struct):
    """What a shell line does: its simple commands in order, and the functions that it defines."""

    commands: list[SimpleCommand] = field(default_factory=list)
    functions: set[str] = field(default_factory=set)


def parse_line(command: str, variables: dict[str, str]) -> Line:
    """Take a line apart; ``variables`` are those known so far, and take up what the line sets."""
    line = Line()
    words: list[Word] = []
    redirects: list[Redirect] = []
    before: SimpleCommand | None = None
    for token in (*tokens(command), Operator("\n")):
        if isinstance(token, Word):
            words.append(token)
        elif isinstance(token, Redirect):
            _add_redirect(line, redirects, token, variables)
        elif token.text == "(" and len(words) == 1 and not redirects:
            line.functions.add(words.pop().text)
        else:
            made = _simple(words, redirects, before, variables)
            if made is not None:
                line.commands.append(made)
            before = made if token.text in ("|", "|&") else None
            words, redirects = [], []
    return line


def inner_commands(command: SimpleCommand) -> Iterator[str]:
    """Yield the texts of the commands inside substitutions."""
    for word in command.words:
        yield from word.inner
    for redirect in command.redirects:
        yield from redirect.target.inner


def _add_redirect(line: Line, redirects: list[Redirect], token: Redirect, variables: dict[str, str]) -> None:
    """Keep a redirect for the command at hand; the body of a here-document belongs to the one before."""
    if token.text == "<<body" and not redirects and line.commands:
        last = line.commands[-1]
        line.commands[-1] = replace(last, redirects=(*last.redirects, token))
    else:
        redirects.append(Redirect(token.text, _expanded(token.target, variables)))


def _simple(
    words: list[Word], redirects: list[Redirect], before: SimpleCommand | None, variables: dict[str, str]
) -> SimpleCommand | None:
    inner: tuple[str, ...] = ()
    while words and (words[0].text in _KEYWORDS or _ASSIGNMENT.match(words[0].text)):
        word = words.pop(0)
        assigned = _ASSIGNMENT.match(word.text)
        if assigned:
            variables[assigned[1]] = _expanded(Word(assigned[2]), variables).text
            inner += word.inner
    if words and words[0].text in ("for", "select", "case", "function"):
        return _forget_loop_variable(words, variables)
    if not words and not redirects and not inner:
        return None
    expanded = [
        part for one in words for word in _braced(one) for part in _split(word, _expanded(word, variables), variables)
    ]
    if inner:
        expanded = [*expanded, Word("", inner)] if expanded else [Word(":", inner)]
    return SimpleCommand(tuple(expanded), tuple(redirects), before)


def _forget_loop_variable(words: list[Word], variables: dict[str, str]) -> SimpleCommand | None:
    if len(words) > 1:
        variables.pop(words[1].text, None)
    inner = tuple(command for word in words for command in word.inner)
    return SimpleCommand((Word(":", inner),)) if inner else None


def _expanded(word: Word, variables: dict[str, str]) -> Word:
    return replace(word, text=_REFERENCE.sub(lambda found: variables.get(found[1], UNKNOWN), word.text))


def _split(written: Word, word: Word, variables: dict[str, str]) -> list[Word]:
    """Return the words that an unquoted variable falls into."""
    if written.quoted or VARIABLE not in written.text:
        return [word]
    parts = re.split(f"[\\s{re.escape(variables.get('IFS', ''))}]+", word.text)
    return [Word(part, word.inner) for part in parts if part] or [word]


def _braced(word: Word) -> list[Word]:
    """Return the words that ``a{b,c}`` stands for."""
    done: list[str] = []
    waiting = [word.text]
    while waiting and len(done) + len(waiting) < _MOST_WORDS:
        text = waiting.pop()
        found = None if re.search(r"\s", text) else _BRACES.search(text)
        if found is None:
            done.append(text)
        else:
            waiting += [text[: found.start()] + part + text[found.end() :] for part in found[1].split(",")]
    return [replace(word, text=text) for text in (*waiting, *reversed(done))]
