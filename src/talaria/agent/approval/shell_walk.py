"""Walk through shell code in execution order, on every possible path."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tree_sitter import Node

from talaria.agent.approval.shell_expansion import Expansion, find_doubts, is_literal_document, parse_shell, text_of
from talaria.agent.approval.shell_state import (
    ITEMS,
    NAME,
    UNKNOWN,
    Redirect,
    ShellInput,
    ShellState,
    ShellWord,
    SimpleCommand,
    predict_output,
    predict_pipeline_output,
)

_MAX_DEPTH = 8
_MAX_STEPS = 10_000
_MAX_WORDS = 5_000
_MAX_ROUNDS = 12
_ARITHMETIC_ASSIGNMENT = re.compile(
    r"(?<!\w)([A-Za-z_]\w*)(?:\[[^\]]{0,200}\])?\s*(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=))|(?:\+\+|--)(\w+)"
)
_MOVES = frozenset({"cd", "pushd", "popd"})
_SUBSHELLS = frozenset({"subshell", "command_substitution", "process_substitution", "function_definition"})
_IGNORED = frozenset(
    {";", ";;", "&", "&&", "||", "|", "|&", "\n", "comment", "{", "}", "(", ")", "do", "done", "then", "!", "fi"}
)


class ShellWalk:
    """A simulated run of shell code: ``visit`` gets every simple command, ``on_doubt`` what can't be parsed."""

    def __init__(
        self, state: ShellState, visit: Callable[[SimpleCommand], None], on_doubt: Callable[[str], None]
    ) -> None:
        self.state = state
        self._visit = visit
        self._on_doubt = on_doubt
        self._expansion = Expansion(lambda: self.state, self._substitute)
        self._depth = 0
        self._steps = 0
        self._calls: list[str] = []
        self._locals: list[dict[str, str]] = []
        self._seen: list[SimpleCommand] = []
        self._uncalled: dict[str, tuple[Node, ...]] = {}
        self._handlers: dict[str, Callable[[Node], None]] = {
            "command": self._walk_command,
            "redirected_statement": self._run_redirected,
            "list": self._list,
            "pipeline": self._walk_pipeline,
            "compound_statement": self._walk_compound,
            "subshell": self._walk_subshell,
            "negated_command": self._walk_statements,
            "if_statement": self._walk_if,
            "elif_clause": self._walk_if,
            "while_statement": self._walk_while,
            "for_statement": self._walk_for,
            "c_style_for_statement": self._count_loop,
            "case_statement": self._walk_case,
            "case_item": self._walk_item,
            "function_definition": self._walk_function,
            "variable_assignment": self._walk_assignments,
            "variable_assignments": self._walk_assignments,
            "declaration_command": self._walk_declaration,
            "unset_command": self._walk_declaration,
            "test_command": self._test,
        }

    def run(self, code: str) -> None:
        """Walk through code in this shell; functions that are never called are visited at the end."""
        if self._depth >= _MAX_DEPTH:
            self._on_doubt("nests commands too deeply to check")
            return
        self._depth += 1
        root = parse_shell(code)
        found = list(find_doubts(root))
        for doubt in found:
            self._on_doubt(doubt)
        if not any("too " in doubt for doubt in found):
            self._walk_statements(root)
        self._depth -= 1
        while self._depth == 0 and self._uncalled:
            name, bodies = self._uncalled.popitem()
            with self.discarding_changes():
                self.state.arguments = None
                self._run_bodies(name, bodies)

    def run_aside(self, code: str, arguments: tuple[str, ...] | None = None) -> None:
        """Walk through code in another shell, whose changes are dropped afterwards."""
        with self.discarding_changes():
            self.state = self.state.copy_for_child()
            self.state.arguments = arguments
            self.run(code)

    @contextmanager
    def discarding_changes(self) -> Iterator[None]:
        """Drop the changes made in the block."""
        before, self.state = self.state, self.state.copy()
        try:
            yield
        finally:
            self.state = before

    def walk_called_function(self, command: SimpleCommand) -> bool:
        """Walk through the function that a command calls, if it does; return whether it recurses endlessly."""
        bodies = self.state.functions.get(command.program)
        if not bodies:
            return False
        self._uncalled.pop(command.program, None)
        if command.program in self._calls:
            return True
        before = self.state.arguments
        loose = any(word.loose for word in command.words)
        self.state.arguments = None if loose else command.arguments
        self._run_bodies(command.program, bodies)
        self.state.arguments = before
        return False

    def _run_bodies(self, name: str, bodies: Sequence[Node]) -> None:
        self._calls.append(name)
        self._locals.append({})
        before = self.state.copy() if len(bodies) > 1 else None
        for body in bodies:
            self._walk_statement(body)
        if before is not None:
            self.state.merge(before)
        self._calls.pop()
        self.state.variables.update(self._locals.pop())

    def _walk_statements(self, node: Node) -> None:
        children = node.children
        for index, child in enumerate(children):
            if child.type in _IGNORED:
                continue
            following = children[index + 1].type if index + 1 < len(children) else ""
            if following == "&":
                with self.discarding_changes():
                    self._walk_statement(child)
            else:
                self._walk_statement(child)

    def _walk_statement(self, node: Node) -> None:
        self._steps += 1
        if self._steps == _MAX_STEPS:
            self._on_doubt("runs too many commands to check")
        if self._steps >= _MAX_STEPS:
            return
        handler = self._handlers.get(node.type)
        if handler is not None:
            handler(node)
        elif node.is_error or node.type in ("program", "do_group", "else_clause"):
            self._walk_statements(node)
        elif node.is_named:
            self._expansion.scan(node)
            for child in node.children:
                if child.type in self._handlers:
                    self._walk_statement(child)

    def _walk_command(self, node: Node, outer: Sequence[Redirect] = (), extra: Sequence[ShellWord] = ()) -> None:
        """Run a simple command; ``outer`` and ``extra`` are redirections and words outside of its node."""
        words: list[ShellWord] = []
        assignments: list[tuple[str, str]] = []
        redirects: list[Redirect] = [*outer]
        stdin = self.state.input
        for child in node.children:
            if child.type == "variable_assignment":
                assignments.append(self._read_assignment(child))
            elif child.type.endswith("_redirect"):
                stdin = self._redirect(child, redirects, words) or stdin
            elif len(words) < _MAX_WORDS:
                words += self._expansion.expand_words(child)
            else:
                self._on_doubt("has too many words to check")
                break
        self._run(SimpleCommand((*words, *extra), tuple(redirects), stdin, tuple(assignments)))

    def _run(self, command: SimpleCommand) -> None:
        if not command.words:
            for name, value in command.assignments:
                self.state.assign(name, value)
        known = {name: self.state.variables.get(name) for name, _ in command.assignments}
        exported = set(self.state.exported)
        for name, value in command.assignments if command.words else ():
            self.state.assign(name, value)
            self.state.exported.add(name)
        self._seen.append(command)
        self._visit(command)
        if command.words:
            self.state.exported = exported
            self.state.variables.update((name, UNKNOWN if value is None else value) for name, value in known.items())

    def _run_redirected(self, node: Node) -> None:
        body = node.child_by_field_name("body")
        redirects: list[Redirect] = []
        extra: list[ShellWord] = []
        before, stdin = self.state.input, None
        others = [child for child in node.children if child != body]
        for child in others:
            if child.type.endswith("_redirect"):
                stdin = self._redirect(child, redirects, extra) or stdin
        self.state.input = stdin or before
        if body is not None and body.type == "command":
            self._walk_command(body, redirects, extra)
        else:
            self._run(SimpleCommand((), tuple(redirects), self.state.input))
            if body is not None:
                self._walk_statement(body)
        self.state.input = before
        for child in others:
            if child.type == "heredoc_redirect":
                self._walk_continuation(child)

    def _redirect(self, node: Node, redirects: list[Redirect], words: list[ShellWord]) -> ShellInput | None:
        """Record a redirection; return the input it gives to the command, if any."""
        if node.type == "herestring_redirect":
            word = self._expansion.expand_word(node.children[-1])
            return ShellInput(word.text, word.sources)
        if node.type == "heredoc_redirect":
            return self._read_document(node, redirects, words)
        operator = next((text_of(one) for one in node.children if one.type[:1] in "<>&"), ">")
        targets = node.children_by_field_name("destination")
        for index, target in enumerate(targets):
            expanded = self._expansion.expand_words(target)
            if index:  # the grammar takes the words after a redirection for more targets
                words += expanded
                continue
            redirects += [Redirect(operator, word) for word in expanded]
            if operator == "<" and expanded:
                sources = expanded[0].sources
                return ShellInput(UNKNOWN, sources, "" if sources else expanded[0].text)
        return None

    def _read_document(self, node: Node, redirects: list[Redirect], words: list[ShellWord]) -> ShellInput:
        body = next((text_of(one) for one in node.children if one.type == "heredoc_body"), "")
        source = text_of(node)
        start = source.find("\n") + 1
        if body and start:
            end = next(one for one in node.children if one.type == "heredoc_end")
            raw = (node.text or b"")[: end.start_byte - node.start_byte].decode("utf-8", "surrogatepass")
            body = raw[start:].rstrip("\t")
        for index, child in enumerate(node.children):
            if child.type in ("file_redirect", "herestring_redirect"):
                self._redirect(child, redirects, words)
            elif node.field_name_for_child(index) == "argument":
                words += self._expansion.expand_words(child)
        if is_literal_document(node):
            return ShellInput(body, ("cat",))
        word = self._expansion.expand_document(body)
        return ShellInput(word.text, ("cat", *word.sources))

    def _walk_continuation(self, node: Node) -> None:
        """Run what follows a here-document on its first line: the rest of a pipeline or of a list."""
        for index, child in enumerate(node.children):
            if child.type == "pipeline":
                stdin = self._predict_output(self._seen[-1:])
                self._walk_stages([one for one in child.children if one.is_named], stdin)
            elif node.field_name_for_child(index) == "right":
                before = self.state.copy()
                self._walk_statement(child)
                self.state.merge(before)

    def _list(self, node: Node) -> None:
        left, right = node.children[0], node.children[-1]
        before = self.state.folders
        self._walk_statement(left)
        after = self.state.copy()
        if node.children[1].type == "&&" and left.type == "command" and text_of(left.children[0]) == "cd":
            reached = self.state.folders
            if reached is not None and before is not None and len(reached) > 1:
                self.state.folders = reached[:1]
        if right is not left:
            self._walk_statement(right)
        self.state.merge(after)

    def _walk_pipeline(self, node: Node) -> None:
        self._walk_stages([one for one in node.children if one.is_named and one.type != "comment"], self.state.input)

    def _walk_stages(self, parts: list[Node], stdin: ShellInput | None) -> None:
        for part in parts:
            with self.discarding_changes():
                self.state.input = stdin
                count = len(self._seen)
                self._walk_statement(part)
                stdin = self._predict_output(self._seen[count:], stdin)

    def _predict_output(self, commands: Sequence[SimpleCommand], stdin: ShellInput | None = None) -> ShellInput:
        """Return the output of commands, as the input of the next."""
        sources = (*(stdin.sources if stdin else ()), *(command.program for command in commands))
        text = predict_output(commands[0], self.state) if len(commands) == 1 else UNKNOWN
        return ShellInput(text, sources, piped=True)

    def _substitute(self, code: Node | str) -> ShellWord:
        """Run the code of a substitution; return its output, as far as known."""
        seen, self._seen = self._seen, []
        stdin = self.state.input
        with self.discarding_changes():
            if isinstance(code, str):
                self.run(code)
            else:
                redirect = next((one for one in code.children if one.type == "file_redirect"), None)
                if redirect is not None:
                    self._run_redirected(code)
                else:
                    self._walk_inner_statements(code)
            inner, self._seen = self._seen, seen
            self.state.input = stdin
            last = inner[-1:] if all(one.program in (*_MOVES, "pwd") for one in inner) else inner
            text = predict_output(last[0], self.state) if len(last) == 1 else predict_pipeline_output(inner, self.state)
        self._seen += inner
        return ShellWord(text.strip("\n"), sources=tuple(one.program for one in inner) or ("",))

    def _walk_inner_statements(self, node: Node) -> None:
        for index, child in enumerate(node.children):
            if 0 < index < len(node.children) - 1 and child.type not in _IGNORED:
                self._walk_statement(child)

    def _walk_compound(self, node: Node) -> None:
        if node.children and node.children[0].type == "((":
            self._expansion.scan(node)
            self._assign_counters(text_of(node))
        else:
            self._walk_statements(node)

    def _assign_counters(self, text: str) -> None:
        for found in _ARITHMETIC_ASSIGNMENT.finditer(text):
            self.state.assign(found[1] or found[2], NAME)

    def _walk_subshell(self, node: Node) -> None:
        with self.discarding_changes():
            self._walk_statements(node)

    def _walk_if(self, node: Node) -> None:
        """Walk through the conditions in order, and through each branch independently."""
        ends: list[ShellState] = []
        is_branch = False
        saved = self.state
        for child in node.children:
            if child.type in ("then", "else"):
                is_branch, saved, self.state = True, self.state, self.state.copy()
            elif child.type in ("elif_clause", "else_clause"):
                if is_branch:
                    ends.append(self.state)
                    is_branch, self.state = False, saved
                ends += self._walk_clause(child)
            elif child.type not in _IGNORED and child.is_named:
                self._walk_statement(child)
        if is_branch:
            ends.append(self.state)
            self.state = saved
        for end in ends:
            self.state.merge(end)

    def _walk_clause(self, node: Node) -> list[ShellState]:
        saved, ended = self.state, False
        for child in node.children:
            if child.type in ("then", "else"):
                saved, self.state, ended = self.state, self.state.copy(), True
            elif child.type not in _IGNORED and child.is_named:
                self._walk_statement(child)
        end, self.state = self.state, saved
        return [end] if ended else []

    def _walk_while(self, node: Node) -> None:
        before = self.state.copy()
        self._forget_assigned(node)
        for child in node.children:
            if child.is_named and child.type not in _IGNORED:
                self._walk_statement(child)
        self.state.merge(before)

    def _walk_for(self, node: Node) -> None:
        name = text_of(node.child_by_field_name("variable") or node)
        values = [word for one in node.children_by_field_name("value") for word in self._expansion.expand_words(one)]
        body = node.child_by_field_name("body")
        before = self.state.copy()
        self._forget_assigned(node)
        rounds = list(dict.fromkeys(word.text for word in values))
        if len(rounds) > _MAX_ROUNDS or any(UNKNOWN in text for text in rounds):
            rounds = [NAME if all(text.isalnum() or text == NAME for text in rounds) else UNKNOWN]
        for text in rounds or [UNKNOWN]:
            self.state.assign(name, text)
            if body is not None:
                self._walk_statement(body)
        self.state.assign(name, UNKNOWN)
        self.state.merge(before)

    def _count_loop(self, node: Node) -> None:
        before = self.state.copy()
        self._forget_assigned(node)
        self._expansion.scan(node)
        self._assign_counters(text_of(node).partition("))")[0])
        body = node.child_by_field_name("body")
        if body is not None:
            self._walk_statement(body)
        self.state.merge(before)

    def _walk_case(self, node: Node) -> None:
        value = node.child_by_field_name("value")
        if value is not None:
            self._expansion.expand_words(value)
        before = self.state.copy()
        for child in node.children:
            if child.type == "case_item":
                end = self.state
                self.state = before.copy()
                self._walk_item(child)
                self.state.merge(end)

    def _walk_item(self, node: Node) -> None:
        for index, child in enumerate(node.children):
            if node.field_name_for_child(index) == "value":
                self._expansion.expand_words(child)
            elif child.is_named:
                self._walk_statement(child)

    def _walk_function(self, node: Node) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is None or body is None:
            self._on_doubt("has a function that can't be parsed")
            return
        for child in node.children:
            if child.type.endswith("_redirect"):
                self._redirect(child, [], [])
        known = self.state.functions.get(text_of(name), ())
        self.state.functions[text_of(name)] = self._uncalled[text_of(name)] = (*known, body)

    def _walk_assignments(self, node: Node) -> None:
        for child in node.children if node.type == "variable_assignments" else [node]:
            name, value = self._read_assignment(child)
            self._run(SimpleCommand((), assignments=((name, value),), input=self.state.input))

    def _read_assignment(self, node: Node) -> tuple[str, str]:
        """Return name and value of an assignment; code hidden in the value runs where it is used in arithmetic."""
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        plain = text_of(name) if name is not None else ""
        if name is not None and name.type == "subscript":
            self._expansion.scan(name)
            plain = plain.partition("[")[0]
        if value is None:
            text = ""
        elif value.type == "array":
            items = [word for child in value.children[1:-1] for word in self._expansion.expand_words(child)]
            text = ITEMS.join(word.text for word in items) if not any(word.loose for word in items) else UNKNOWN
        else:
            text = self._expansion.expand_word(value).text
        if name is not None and name.type == "subscript":
            text = UNKNOWN
        if any(child.type == "+=" for child in node.children):
            text = self.state.get_value(plain) + text
        self.evaluate(text)
        return plain, text

    def evaluate(self, text: str) -> None:
        """Run the substitutions in a text that arithmetic may evaluate later."""
        if "$(" in text or "`" in text:
            with self.discarding_changes():
                self._expansion.expand_document(text)

    def _walk_declaration(self, node: Node) -> None:
        words = [ShellWord(text_of(node.children[0]))]
        for child in node.children[1:]:
            if child.type == "variable_assignment":
                name, value = self._read_assignment(child)
                if self._locals and words[0].text in ("local", "declare", "typeset"):
                    self._locals[-1].setdefault(name, self.state.get_value(name))
                value = UNKNOWN if "{" in text_of(child) else value  # braces are expanded here, unlike in assignments
                self.state.assign(name, value)
                words.append(ShellWord(f"{name}={value}", quoted=True))
            else:
                words += self._expansion.expand_words(child)
        self._run(SimpleCommand(tuple(words), input=self.state.input))

    def _forget_assigned(self, node: Node) -> None:
        """Forget variables that the body of a loop may have set in an earlier round."""
        for child in node.children:
            if child.type == "variable_assignment":
                name = child.child_by_field_name("name")
                self.state.assign(text_of(name).partition("[")[0] if name is not None else "", UNKNOWN)
            elif child.type == "command_name" and text_of(child) in _MOVES:
                self.state.folders = None
            elif child.type in ("compound_statement", "arithmetic_expansion") and text_of(child).startswith(
                ("((", "$((")
            ):
                self._assign_counters(text_of(child))
            if child.type not in _SUBSHELLS:
                self._forget_assigned(child)

    def _test(self, node: Node) -> None:
        self._expansion.scan(node)
        for text in re.findall(r"'([^']*)'", text_of(node)):
            self.evaluate(text)
