"""Bash grammar: parse shell code into a syntax tree, and tell what of it cannot be trusted to be read right."""

import re
from bisect import bisect_right
from collections.abc import Iterator

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

_DEEPEST = 120
_LONGEST = 200_000
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
    """Return the syntax tree of shell code; it has error nodes where the grammar does not know what is written."""
    return _parser.parse(code.encode("utf-8", "surrogatepass")).root_node


def text_of(node: Node) -> str:
    """Return the source text of a node."""
    return (node.text or b"").decode("utf-8", "surrogatepass")


def doubts(root: Node) -> Iterator[str]:
    """Yield why the tree may differ from what bash reads; nothing where it can be trusted."""
    source = root.text or b""
    if len(source) > _LONGEST:
        yield "is too long to be understood"
        return
    if root.has_error:
        yield "has a part that cannot be understood"
    known: set[int] = set()
    literal: list[tuple[int, int]] = []
    for node, depth in _descendants(root):
        if depth > _DEEPEST:
            yield "nests commands too deeply to be understood"
            return
        yield from _doubts_of(node)
        if node.type in _RUNS:
            known.add(node.start_byte)
        elif node.type in _LITERAL:
            literal.append((node.start_byte, node.end_byte))
        elif node.type == "heredoc_redirect" and is_literal_document(node):
            literal += [(one.start_byte, one.end_byte) for one in node.children if one.type == "heredoc_body"]
    if _missed(source, root.start_byte, known, literal):
        yield "has a command substitution that cannot be understood"
    if _splits_words(source, root.start_byte, literal):
        yield "splits a word over two lines"


def _doubts_of(node: Node) -> Iterator[str]:
    """Yield what the grammar is known to take for something else."""
    match node.type:
        case "word" if "`" not in text_of(node) and _BARE_BREAK.search(text_of(node)):
            yield "has a line break that cannot be understood"
        case "command_name" if text_of(node) in _KEYWORDS:
            yield "has a compound command that cannot be understood"
        case "heredoc_redirect" if not is_plain_document(node):
            yield "has a here-document that cannot be understood"
        case "command_substitution" if text_of(node).lstrip().startswith("`"):
            if len(_BACKQUOTE.findall(text_of(node))) > 2:
                yield "has backquotes that cannot be understood"


def is_literal_document(node: Node) -> bool:
    """Return whether the delimiter of a here-document is quoted, so that nothing in its body is expanded."""
    start = next((text_of(one) for one in node.children if one.type == "heredoc_start"), "")
    return bool(set(start) & set("'\"\\"))


def is_plain_document(node: Node) -> bool:
    """Return whether bash is sure to end a here-document where the grammar does."""
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


def _missed(source: bytes, offset: int, known: set[int], literal: list[tuple[int, int]]) -> bool:
    """Return whether there is a ``$(`` that the grammar did not take for a substitution."""
    spans = sorted(literal)
    places = (found.start(1) + offset for found in _SUBSTITUTION.finditer(source))
    return any(place not in known and not _within(place, spans) for place in places)


def _splits_words(source: bytes, offset: int, literal: list[tuple[int, int]]) -> bool:
    spans = sorted(literal)
    places = (found.start() + offset for found in _JOINED_LINES.finditer(source))
    return any(not _within(place, spans) for place in places)


def _within(place: int, spans: list[tuple[int, int]]) -> bool:
    """Return whether a place is in one of the spans, which are sorted and do not overlap."""
    at = bisect_right(spans, (place, _FAR)) - 1
    return at >= 0 and spans[at][0] <= place < spans[at][1]
