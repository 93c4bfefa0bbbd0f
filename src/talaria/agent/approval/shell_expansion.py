"""Shell code as a syntax tree, and expansion of its words, as far as the code determines them."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase

import tree_sitter_bash
from msgspec import Struct
from tree_sitter import Language, Node, Parser

from talaria.agent.approval.shell_state import ITEMS, NAME, UNKNOWN, ShellState, ShellWord

_MAX_DEPTH = 120
_MAX_BYTES = 200_000
_FAR = 1 << 62
_SUBSTITUTION = re.compile(rb"(?<!\\)(?:\\\\)*(\$\()")
_JOINED_LINES = re.compile(rb"[^\s\\]\\\n\S")
_PLAIN_DELIMITER = re.compile(r"[\w.-]+|'[\w. -]+'|\"[\w. -]+\"|\\[\w.-]+")
_RUNS = frozenset({"command_substitution", "arithmetic_expansion", "process_substitution"})
_LITERAL = frozenset({"raw_string", "ansi_c_string", "comment"})
_KEYWORDS = frozenset({
    "{", "}", "!", "then", "do", "else", "elif", "fi", "done", "esac", "if", "for", "while", "until", "case",
    "select", "function", "]]", "((", "))",
})  # fmt: skip
_BARE_BREAK = re.compile(r"(?<!\\)(?:\\\\)*\s")
_BACKQUOTE = re.compile(r"(?<!\\)(?:\\\\)*`")
_parser = Parser(Language(tree_sitter_bash.language()))
_ANSI = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "v": "\v", "f": "\f"}
_ANSI_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[uU][0-9a-fA-F]{1,8}|[0-7]{1,3}|c.|.)", re.DOTALL)
_BACKQUOTED = re.compile(r"(?<!\\)(?:\\\\)*`((?:[^`\\]|\\.)*)`", re.DOTALL)
_BRACES = re.compile(r"\{([^{},\s]*(?:,[^{},\s]*)+)\}|\{(-?\w+)\.\.(-?\w+)(?:\.\.-?\d+)?\}")
_MAX_WORDS = 64
_MAX_FIELDS = 1_000
_MAX_WORD_LENGTH = 100_000
_MAX_TRIMMED_LENGTH = 1_000
_DELIMITER = "TALARIA_END_OF_TEXT"
_HIDDEN = dict(zip(map(ord, "{},~"), "\ue000\ue001\ue002\ue003", strict=True))
_SHOWN = {ord(hidden): chr(plain) for plain, hidden in _HIDDEN.items()}
_DEFAULTS, _ALTERNATIVES = {":-", "-", ":=", "="}, {":+", "+"}
_EXPANDED = frozenset(
    {"simple_expansion", "expansion", "command_substitution", "process_substitution", "string", "concatenation", "word",
     "arithmetic_expansion"}
)  # fmt: skip
_TILDE = re.compile(r"~([\w.+-]*)(?=/|$)")


def parse_shell(code: str) -> Node:
    """Return the syntax tree of shell code; it has error nodes for unknown syntax."""
    return _parser.parse(code.encode("utf-8", "surrogatepass")).root_node


def text_of(node: Node) -> str:
    """Return the source text of a node."""
    return (node.text or b"").decode("utf-8", "surrogatepass")


def find_doubts(root: Node) -> Iterator[str]:
    """Yield why the tree may differ from bash's own parsing; nothing if it can be trusted."""
    source = root.text or b""
    if len(source) > _MAX_BYTES:
        yield "is too long to check"
        return
    if root.has_error:
        yield "has a part that can't be parsed"
    known: set[int] = set()
    literal: list[tuple[int, int]] = []
    for node, depth in _iterate_descendants(root):
        if depth > _MAX_DEPTH:
            yield "nests commands too deeply to check"
            return
        yield from _find_doubts(node)
        if node.type in _RUNS:
            known.add(node.start_byte)
        elif node.type in _LITERAL:
            literal.append((node.start_byte, node.end_byte))
        elif node.type == "heredoc_redirect" and is_literal_document(node):
            literal += [(one.start_byte, one.end_byte) for one in node.children if one.type == "heredoc_body"]
    if _misses_substitution(source, root.start_byte, known, literal):
        yield "has a command substitution that can't be parsed"
    if _splits_words(source, root.start_byte, literal):
        yield "splits a word over two lines"


def is_literal_document(node: Node) -> bool:
    """Return whether the delimiter of a here-document is quoted, so that its body is not expanded."""
    start = next((text_of(one) for one in node.children if one.type == "heredoc_start"), "")
    return bool(set(start) & set("'\"\\"))


def is_plain_document(node: Node) -> bool:
    """Return whether bash certainly ends a here-document where the grammar does."""
    parts = {one.type: text_of(one) for one in node.children}
    start = parts.get("heredoc_start", "")
    delimiter = start.strip("'\"\\")
    if not _PLAIN_DELIMITER.fullmatch(start) or parts.get("heredoc_end", "").strip("\t") != delimiter:
        return False
    tabs = "\t" if "<<-" in parts else ""
    return all(line.lstrip(tabs) != delimiter for line in parts.get("heredoc_body", "").splitlines())


class _Piece(Struct, frozen=True):
    text: str
    quoted: bool = False
    splits: bool = False
    sources: tuple[str, ...] = ()


class Expansion:
    """Expands words in one state; ``substitute`` runs the code of a substitution and returns its output."""

    def __init__(self, state: Callable[[], ShellState], substitute: Callable[[Node | str], ShellWord]) -> None:
        self._state = state
        self._substitute = substitute

    def expand_words(self, node: Node, *, splits: bool = True) -> list[ShellWord]:
        """Return the words that a node of the syntax tree expands to; none for an empty variable.

        Without ``splits`` it stays one word, as in assignments: no braces, no splitting of variables.
        """
        pieces = list(self._expand_pieces(node))
        quoted = any(piece.quoted for piece in pieces)
        sources = tuple(source for piece in pieces for source in piece.sources)
        found: list[ShellWord] = []
        if sum(len(piece.text) for piece in pieces) > _MAX_WORD_LENGTH:
            return [ShellWord(UNKNOWN, quoted, loose=True, sources=sources)]
        texts = self._split_fields(pieces) if splits else ["".join(piece.text for piece in pieces)]
        for text in texts:
            for braced in _expand_braces(text) if splits else [text]:
                plain = self._expand_tilde(braced).translate(_SHOWN)
                loose = UNKNOWN in plain and any(piece.splits and UNKNOWN in piece.text for piece in pieces)
                if plain or quoted:
                    found.append(ShellWord(plain, quoted, loose, sources))
        return found

    def expand_word(self, node: Node) -> ShellWord:
        """Return a node as one word, as in assignments and here-strings."""
        words = self.expand_words(node, splits=False)
        sources = tuple(source for word in words for source in word.sources)
        return ShellWord(" ".join(word.text for word in words), quoted=True, sources=sources)

    def expand_document(self, text: str) -> ShellWord:
        """Return a text in which only variables and substitutions are expanded, as in a here-document."""
        head = f"cat <<{_DELIMITER}\n"
        root = parse_shell(f"{head}{text}\n{_DELIMITER}\n")
        body = next((node for node in _walk(root) if node.type == "heredoc_body"), None)
        source, at, pieces = text.encode("utf-8", "surrogatepass"), 0, []
        for child in body.children if body is not None else ():
            if child.type in ("simple_expansion", "expansion", "command_substitution", "arithmetic_expansion"):
                pieces.append(_Piece(_unescape_quoted(source[at : child.start_byte - len(head)])))
                pieces += self._expand_pieces(child)
                at = child.end_byte - len(head)
        pieces.append(_Piece(_unescape_quoted(source[at:])))
        codes = [self._expand_substitution(code, quoted=True) for code in find_backquoted(text)]
        sources = tuple(source for piece in (*pieces, *codes) for source in piece.sources)
        return ShellWord(UNKNOWN if codes else "".join(piece.text for piece in pieces), quoted=True, sources=sources)

    def scan(self, node: Node) -> None:
        """Run every substitution below a node whose value is irrelevant."""
        for _ in self._scan(node):
            pass

    def _scan(self, node: Node) -> Iterator[_Piece]:
        for child in node.children:
            if child.type in (
                "simple_expansion",
                "expansion",
                "command_substitution",
                "process_substitution",
            ) or child.type in ("string", "concatenation", "arithmetic_expansion", "word"):
                yield from self._expand_pieces(child)
            else:
                yield from self._scan(child)

    def _expand_pieces(self, node: Node) -> Iterator[_Piece]:
        match node.type:
            case "word":
                yield from self._expand_bare_text(text_of(node))
            case "raw_string":
                yield _Piece(text_of(node)[1:-1], quoted=True)
            case "ansi_c_string":
                yield _Piece(_ANSI_ESCAPE.sub(_unescape_ansi, text_of(node)[2:-1]), quoted=True)
            case "string":
                yield from self._expand_string(node)
            case "concatenation" | "command_name" | "translated_string":
                for child in node.children:
                    yield from self._expand_pieces(child)
            case "simple_expansion" | "expansion":
                yield self._expand_parameter(node)
            case "command_substitution":
                yield self._expand_substitution(node, quoted=False)
            case "process_substitution":
                yield _Piece(UNKNOWN, quoted=True, sources=self._substitute(node).sources or ("",))
            case _:
                self.scan(node)
                plain = not node.children or node.type == "brace_expression"
                yield _Piece(NAME if node.type == "arithmetic_expansion" else text_of(node) if plain else UNKNOWN)

    def _expand_bare_text(self, text: str) -> Iterator[_Piece]:
        for code in find_backquoted(text):
            yield self._expand_substitution(code, quoted=False)
            return
        plain = re.sub(r"\\(.)", lambda found: found[1].replace("\n", "").translate(_HIDDEN), text, flags=re.DOTALL)
        yield _Piece(plain, quoted=plain != text)

    def _expand_string(self, node: Node) -> Iterator[_Piece]:
        """Yield the parts of a double-quoted string; in the tree, spaces next to a substitution belong to it."""
        source, at = node.text or b"", 1
        yield _Piece("", quoted=True)
        for child in node.children[1:-1]:
            if child.type == "string_content":
                continue
            yield _Piece(_unescape_quoted(source[at : child.start_byte - node.start_byte]), quoted=True)
            for piece in self._expand_pieces(child):
                yield _Piece(piece.text, quoted=True, sources=piece.sources)
            at = child.end_byte - node.start_byte
        yield _Piece(_unescape_quoted(source[at:-1]), quoted=True)

    def _expand_substitution(self, code: Node | str, *, quoted: bool) -> _Piece:
        if isinstance(code, Node) and text_of(code).lstrip().startswith("`"):
            code = _unescape_backquoted(text_of(code).strip()[1:-1])
        word = self._substitute(code)
        return _Piece(word.text, quoted=quoted, splits=not quoted, sources=word.sources)

    def _expand_parameter(self, node: Node) -> _Piece:
        if node.type == "simple_expansion":
            return _Piece(self._state().get_value(text_of(node)[1:]), splits=True)
        name, index, operators, operands = self._read_parts(node)
        codes = [self._expand_substitution(code, quoted=False) for code in find_backquoted(text_of(node))]
        if codes:  # the grammar takes backquotes in here for plain text
            return _Piece(UNKNOWN, splits=True, sources=tuple(one for piece in codes for one in piece.sources))
        state = self._state()
        value = state.get_value(name) if name else UNKNOWN
        if index is not None:
            value = value if index in ("@", "*") else _get_element(value, index)
        operand = "".join(operands)
        if operators[:1] == ["#"] and not operands and text_of(node).startswith("${#"):
            return _Piece(NAME)
        operator = operators[0] if operators else ""
        if operator in _DEFAULTS:
            value = self._apply_default(name, operator, value, operand)
        elif operator in _ALTERNATIVES:
            value = UNKNOWN if UNKNOWN in value else operand if value else ""
        elif operator in ("%", "%%", "#", "##"):
            value = _trim(value, operator, operand)
        elif operator not in ("", ":?", "?"):
            value = UNKNOWN
        return _Piece(value, splits=True)

    def _read_parts(self, node: Node) -> tuple[str, str | None, list[str], list[str]]:
        name, index, operators, operands = "", None, [], []
        for position, child in enumerate(node.children[1:-1], 1):
            if child.type in ("variable_name", "special_variable_name") and not name:
                name = text_of(child)
            elif child.type == "subscript" and not name:
                name, index = self._read_subscript(child)
            elif node.field_name_for_child(position) == "operator":
                operators.append(text_of(child))
            else:
                operands.append("".join(piece.text for piece in self._expand_pieces(child)))
        return name, index, operators, operands

    def _read_subscript(self, node: Node) -> tuple[str, str]:
        name = next((text_of(child) for child in node.children if child.type == "variable_name"), "")
        index = node.child_by_field_name("index")
        return name, self.expand_word(index).text if index is not None else UNKNOWN

    def _apply_default(self, name: str, operator: str, value: str, default: str) -> str:
        is_set = name in self._state().variables or not name.isidentifier()
        if UNKNOWN in value and is_set:
            return UNKNOWN
        value = default if not is_set or not value else value
        if operator in (":=", "=") and name.isidentifier():
            self._state().assign(name, value)
        return value

    def _split_fields(self, pieces: list[_Piece]) -> list[str]:
        """Return the fields of a word after splitting its variables."""
        fields = [""]
        separators = self._state().variables.get("IFS", " \t\n")
        unknown = UNKNOWN in separators
        for piece in pieces:
            parts = piece.text.split(ITEMS)
            if piece.splits and unknown and not piece.text.isalnum():
                parts = [UNKNOWN]
            elif piece.splits:
                parts = [one for part in parts for one in _split(part, separators)]
            hide = piece.quoted or piece.splits
            parts = [part.translate(_HIDDEN) if hide else part for part in parts]
            fields[-1] += parts[0]
            fields += parts[1:]
        if len(fields) > _MAX_FIELDS:
            return [UNKNOWN]
        return [one for one in fields if one] or ([""] if any(piece.quoted for piece in pieces) else [])

    def _expand_tilde(self, text: str) -> str:
        found = _TILDE.match(text)
        if found is None:
            return text
        home = self._state().get_value("HOME")
        if found[1] in ("+", "-"):
            home = self._state().get_value("PWD") if found[1] == "+" else UNKNOWN
        elif found[1]:
            home = f"{home.rpartition('/')[0]}/{found[1]}" if UNKNOWN not in home else UNKNOWN
        return home + text[found.end() :]


def find_backquoted(text: str) -> list[str]:
    """Return the code between the backquotes of a text."""
    return [_unescape_backquoted(code) for code in _BACKQUOTED.findall(text)]


def _find_doubts(node: Node) -> Iterator[str]:
    """Yield constructs that the grammar is known to misread."""
    match node.type:
        case "word" if "`" not in text_of(node) and _BARE_BREAK.search(text_of(node)):
            yield "has a line break that can't be parsed"
        case "command_name" if text_of(node) in _KEYWORDS:
            yield "has a compound command that can't be parsed"
        case "heredoc_redirect" if not is_plain_document(node):
            yield "has a here-document that can't be parsed"
        case "command_substitution" if text_of(node).lstrip().startswith("`"):
            if len(_BACKQUOTE.findall(text_of(node))) > 2:
                yield "has backquotes that can't be parsed"


def _iterate_descendants(root: Node) -> Iterator[tuple[Node, int]]:
    waiting = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        yield node, depth
        waiting += [(child, depth + 1) for child in node.children]


def _misses_substitution(source: bytes, offset: int, known: set[int], literal: list[tuple[int, int]]) -> bool:
    """Return whether there is a ``$(`` that the grammar didn't parse as a substitution."""
    spans = sorted(literal)
    offsets = (found.start(1) + offset for found in _SUBSTITUTION.finditer(source))
    return any(offset_at not in known and not _is_within(offset_at, spans) for offset_at in offsets)


def _splits_words(source: bytes, offset: int, literal: list[tuple[int, int]]) -> bool:
    spans = sorted(literal)
    offsets = (found.start() + offset for found in _JOINED_LINES.finditer(source))
    return any(not _is_within(offset_at, spans) for offset_at in offsets)


def _is_within(offset_at: int, spans: list[tuple[int, int]]) -> bool:
    """Return whether a position is in one of the spans, which are sorted and don't overlap."""
    at = bisect_right(spans, (offset_at, _FAR)) - 1
    return at >= 0 and spans[at][0] <= offset_at < spans[at][1]


def _split(text: str, separators: str) -> list[str]:
    return re.split(f"[{re.escape(separators)}]+", text) if separators else [text]


def _walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _walk(child)


def _unescape_backquoted(code: str) -> str:
    return re.sub(r"\\([`$\\])", r"\1", code)


def _unescape_quoted(source: bytes) -> str:
    text = source.decode("utf-8", "surrogatepass")
    return re.sub(r"\\([$`\"\\\n])", lambda found: found[1].replace("\n", ""), text)


def _unescape_ansi(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] in "xuU" and len(code) > 1:
        return chr(min(int(code[1:], 16), 0x10FFFF))
    if code[0] in "01234567":
        return chr(int(code, 8) & 0xFF)
    return UNKNOWN if code[0] == "c" and len(code) > 1 else _ANSI.get(code, code if code in "\\'\"?" else "\\" + code)


def _get_element(value: str, index: str) -> str:
    items = value.split(ITEMS)
    return items[int(index)] if UNKNOWN not in value and index.isdigit() and int(index) < len(items) else UNKNOWN


def _trim(value: str, operator: str, pattern: str) -> str:
    if UNKNOWN in value or UNKNOWN in pattern or ITEMS in value or len(value) > _MAX_TRIMMED_LENGTH:
        return UNKNOWN
    cuts = range(len(value) + 1)
    if operator[0] == "%":
        rests = [value[:cut] for cut in cuts if fnmatchcase(value[cut:], pattern)]
    else:
        rests = [value[cut:] for cut in cuts if fnmatchcase(value[:cut], pattern)]
    return (min if len(operator) == 2 else max)(rests, key=len, default=value)


def _expand_braces(text: str) -> list[str]:
    """Return the expansions of ``a{b,c}`` and ``{1..3}``."""
    done: list[str] = []
    waiting = [text]
    while waiting:
        if len(done) + len(waiting) > _MAX_WORDS:
            return [UNKNOWN]
        one = waiting.pop()
        found = _BRACES.search(one)
        if found is None:
            done.append(one)
            continue
        parts = found[1].split(",") if found[1] is not None else _expand_sequence(found[2], found[3])
        waiting += [one[: found.start()] + part + one[found.end() :] for part in reversed(parts)]
    return done


def _expand_sequence(first: str, last: str) -> list[str]:
    """Return ``a..c``; a long one of numbers is an unknown name."""
    if re.fullmatch(r"-?\d+", first) and re.fullmatch(r"-?\d+", last):
        start, end = sorted((int(first), int(last)))
        return [str(number) for number in range(start, end + 1)] if end - start < 12 else [NAME]
    if len(first) == len(last) == 1:
        start, end = sorted((ord(first), ord(last)))
        return [chr(code) for code in range(start, end + 1)]
    return [UNKNOWN]
