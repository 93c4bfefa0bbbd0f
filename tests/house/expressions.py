"""Feed adversarial texts to every regular expression of the source: ``python -m tests.house.expressions``.

Prints a line for each expression that takes more processor time than a linear one can: in all, or for a text four times
as long. Texts are runs of each character and of pairs of characters that the expression mentions, with and without an
end that does not fit.
"""

import ast
import itertools
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NamedTuple

from talaria.core.lazy import load_module

SOURCE = Path(__file__).parents[2] / "src"
LENGTH = 5_000
SECONDS = 4.0  # of processor time for all texts of one expression; many quadratic ones take minutes
NOTICEABLE = 0.005  # seconds of processor time for one text; a linear expression takes about one millisecond
GROWTH = 10.0  # for a text four times as long: a linear expression takes 4 to 6 times as long, a quadratic one 16 times
TRUSTED = {"talaria.platforms.webhook.templates"}  # applied to templates, which the owner writes
_WHOLE = {"match", "fullmatch"}
_CALLS = {"compile": 1, "search": 2, "match": 2, "fullmatch": 2, "findall": 2, "finditer": 2, "split": 3, "sub": 4}
_GENERIC = "a0 \n-"
_PAIRED = "a0 \n\"'`*_[(<|\\-.:"


class Expression(NamedTuple):
    """One expression, its module and line, and whether it is only matched at the beginning of a text."""

    location: str
    compiled: "re.Pattern[str]"
    anchored: bool


class _TooSlow(BaseException):
    """The processor time for one expression is used up, or grows faster than a text."""


def expressions() -> Iterator[Expression]:
    """Return every expression of the source that consists of constants."""
    for path in sorted(SOURCE.rglob("*.py")):
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        if name in TRUSTED or ".testing." in name or name.endswith("__main__"):
            continue
        source = path.read_text()
        nodes = list(ast.walk(ast.parse(source))) if "import re\n" in source else []
        calls = [node for node in nodes if _is_call(node)]
        if calls:
            yield from _of_module(load_module(name), nodes, calls)


def _is_call(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and node.func.attr in _CALLS
    )


def _of_module(module: ModuleType, nodes: list[ast.AST], calls: list[ast.AST]) -> Iterator[Expression]:
    names = {
        node.value: node.targets[0].id
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    used = {
        (node.value.id, node.attr)
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    attributes = {node.value: node.attr for node in nodes if isinstance(node, ast.Attribute)}
    for call in calls:
        assert isinstance(call, ast.Call)
        assert isinstance(call.func, ast.Attribute)
        kind, here = call.func.attr, vars(module)
        flags = [word.value for word in call.keywords if word.arg == "flags"] + call.args[_CALLS[kind] :]
        try:
            pattern = _evaluated(call.args[0], here)
            compiled = re.compile(pattern, sum(_evaluated(one, here) for one in flags[:1]))
        except NameError:
            continue  # made at run time
        methods = (
            {attributes[call]}
            if call in attributes
            else {method for name, method in used if name == names.get(call)}
            if kind == "compile"
            else {kind}
        )
        if isinstance(compiled.pattern, str):
            yield Expression(f"{module.__name__}:{call.lineno}", compiled, bool(methods) and methods <= _WHOLE)


def _evaluated(node: ast.expr, names: dict[str, Any]) -> Any:
    return eval(compile(ast.Expression(node), "pattern", "eval"), dict(names))


def adversarial(pattern: str, length: int) -> Iterator[str]:
    """Return texts of a length on which a backtracking expression could take long."""
    characters = sorted({*pattern, *_GENERIC})
    tokens = set(re.findall(r"[\w<>!=-]{2,12}", pattern))
    paired = [one for one in _PAIRED if one in pattern or one in "a "][:5]
    runs = [*characters, *sorted(tokens), *("".join(pair) for pair in itertools.permutations(paired, 2))]
    for run in runs:
        text = run * (length // len(run))
        yield text
        yield f"{text}\x01!"
    for first, run in itertools.product(sorted(set(pattern) & set("<[(`\"'{:@/#|")), "a "):
        yield first + run * length


def try_out(expression: Expression) -> None:
    """Match every adversarial text; raise `_TooSlow` if the time grows faster than the text."""
    pattern = expression.compiled.pattern
    for text, quarter in zip(adversarial(pattern, LENGTH), adversarial(pattern, LENGTH // 4), strict=True):
        # Other processes can slow down one measurement, so only growth that is seen three times counts.
        if all(_grows(expression, text, quarter) for _ in range(3)):
            raise _TooSlow


def _grows(expression: Expression, text: str, quarter: str) -> bool:
    """Return whether a text took noticeably more time than a linear expression needs, given that of its quarter."""
    seconds = _seconds(expression, text)
    return seconds > NOTICEABLE and seconds > GROWTH * _seconds(expression, quarter)


def _seconds(expression: Expression, text: str) -> float:
    """Return the processor time for one text."""
    started = time.process_time()
    if expression.anchored:
        expression.compiled.match(text)
        expression.compiled.fullmatch(text)
    else:
        for _ in expression.compiled.finditer(text):
            pass
    return time.process_time() - started


def _stop(number: int, frame: FrameType | None) -> None:
    raise _TooSlow


def main() -> None:
    """Print module, line and pattern of each slow expression."""
    signal.signal(signal.SIGVTALRM, _stop)
    for expression in expressions():
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        try:
            try_out(expression)
        except _TooSlow:
            sys.stdout.write(f"{expression.location}: {expression.compiled.pattern}\n")
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)


if __name__ == "__main__":
    main()
