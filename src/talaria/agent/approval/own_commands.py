"""Talaria's own command line in the hands of a tool: looking is free, acting is asked about, the policy is refused."""

from collections.abc import Iterator

from talaria.agent.approval.dangers import Danger
from talaria.agent.approval.shell_state import UNKNOWN, SimpleCommand
from talaria.core.own_commands import OwnCommand, is_policy_variable, judge_own_command

_PYTHONS = ("python", "pypy")


def own_danger(command: SimpleCommand) -> Iterator[Danger]:
    """Yield what is wrong with a command that runs Talaria."""
    words = _own_words(command)
    if words is None:
        return
    judged = judge_own_command(words)
    computed = any(UNKNOWN in word for word in words)
    if judged is OwnCommand.REFUSED or any(is_policy_variable(name) for name, _ in command.assignments):
        yield Danger("privilege", "changes what the agent may do, which only a person can at a terminal", fatal=True)
    elif judged is OwnCommand.ACTS or computed:
        yield Danger("privilege", "runs Talaria's own command line", f"talaria {words[0] if words else ''}".strip())


def own_variable(name: str) -> Iterator[Danger]:
    """Yield what is wrong with setting a variable."""
    if is_policy_variable(name):
        yield Danger("privilege", f"sets {name}, which overrides settings of the agent", name)


def _own_words(command: SimpleCommand) -> tuple[str, ...] | None:
    """Return the words after ``talaria``, however it is started; ``None`` for other programs."""
    words = command.arguments
    if command.program == "talaria":
        return words
    if not command.program.startswith(_PYTHONS):
        return None
    for index, word in enumerate(words):
        module = words[index + 1] if word == "-m" and index + 1 < len(words) else word[2:] if word[:2] == "-m" else ""
        if module == "talaria" or module.startswith("talaria."):
            return words[index + (2 if word == "-m" else 1) :]
        if not word.startswith("-"):
            script = word.rstrip("/").rpartition("/")[2]
            inside = script in ("talaria", "__main__.py") and "talaria" in word
            return words[index + 1 :] if inside else None
    return None
