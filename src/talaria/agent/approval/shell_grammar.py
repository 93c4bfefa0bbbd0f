"""Bash grammar: parse shell code into a syntax tree, and find parts that may be parsed wrongly."""

import re
from bisect import bisect_right
from collections.abc import Iterator

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

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
    for node, depth in _descendants(root):
        if depth > _MAX_DEPTH:
            yield "nests commands too deeply to check"
            return
        yield from _doubts_of(node)
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


def _doubts_of(node: Node) -> Iterator[str]:
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


def _descendants(root: Node) -> Iterator[tuple[Node, int]]:
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
