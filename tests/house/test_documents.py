"""Documents match the program: links, commands and settings exist, and Python examples run."""

import asyncio
import re
import shlex
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.app.program import Program
from tests.house.tree import ROOT, files, name

from talaria.app.command_line.dispatch import build_parser
from talaria.app.command_line.spec import read_command_line
from talaria.app.command_line.subcommands import find_subcommand
from talaria.app.platforms import load_network_setups
from talaria.cli.parser_tree import CommandSpec
from talaria.settings.load import load
from talaria.settings.profiles import Profile
from talaria.settings.schema import SettingsSchema
from talaria.settings.secrets import list_secret_names
from talaria.testing.model_server import Ask, ModelServer, Say

DOCUMENTS = [*sorted(ROOT.glob("*.md")), *files("docs", suffix=".md")]
GENERATED = {"docs/reference/commands.md", "docs/reference/settings.md", "docs/reference/slash-commands.md"}
WRITTEN = [path for path in DOCUMENTS if name(path) not in GENERATED]
DECISIONS = sorted((ROOT / "docs" / "adr").glob("*.md"))

_FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]\n]+\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_TALARIA = re.compile(r"(?:^|.*[\s(])(talaria(?: .*)?)$")
_BETWEEN_COMMANDS = re.compile(r"\s(?:\||&&)\s")
_BEHIND_COMMAND = re.compile(r"\s+[#<>].*|\)$")
_OURS = re.compile(r"(?:src|tests|bench|scripts|docs|requirements)/[\w./-]*")
_PYTHON = re.compile(r"^ *```python$", re.MULTILINE)
PROGRAMS = [
    (path, index)
    for path in [ROOT / "README.md", *files("docs/how-to", suffix=".md")]
    for index in range(len(_PYTHON.findall(path.read_text())))
]


def prose(path: Path) -> str:
    return _FENCED.sub("", path.read_text())


def shell_lines(path: Path) -> Iterator[str]:
    for language, block in _FENCED.findall(path.read_text()):
        if language == "sh":
            yield from (line.strip() for line in block.replace("\\\n", " ").splitlines() if line.strip())


def commands_in_blocks(path: Path) -> Iterator[list[str]]:
    """Yield the arguments of each `talaria` command in the code blocks."""
    for line in shell_lines(path):
        for piece in _BETWEEN_COMMANDS.split(line):
            found = _TALARIA.match(_BEHIND_COMMAND.sub("", piece))
            if found:
                yield shlex.split(found[1])[1:]


def commands_in_prose(path: Path) -> Iterator[list[str]]:
    for code in _INLINE.findall(prose(path)):
        if code == "talaria" or code.startswith("talaria "):
            yield code.split()[1:]


def programs(path: Path) -> list[str]:
    return [block for language, block in _FENCED.findall(path.read_text()) if language == "python"]


def _of_any_name(key: str) -> str:
    """Return a key of a named table as the reference writes it."""
    return re.sub(r"^(providers|models|surfaces|mcp|platforms|people)\.[^.]+\.", r"\1.<name>.", key)


def settings_blocks(path: Path) -> Iterator[str]:
    """Yield the code blocks that belong into a config.toml; others are files of projects, routes or other programs."""
    sections = {field.path[0] for field in SettingsSchema().fields()}
    for language, block in _FENCED.findall(path.read_text()):
        text = textwrap.dedent(block)
        if language == "toml" and sections & tomllib.loads(text).keys():
            yield text


def anchor(heading: str) -> str:
    """Return the name under which a heading can be linked to."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def is_valid_command(arguments: list[str]) -> bool:
    """Return whether the program's parsers accept these arguments."""
    while arguments[:1] == ["-p"]:
        arguments = arguments[2:]
    if not arguments or arguments in (["--version"], ["--help"]) or arguments[0] == "help":
        return True
    if " " in arguments[0]:  # a question
        arguments = ["chat", *arguments]
    subcommand = find_subcommand(arguments[0])
    if subcommand is None:
        return False
    try:
        build_parser(subcommand).parse_args(arguments[1:])
    except SystemExit as left:
        return not left.code
    return True


@cache
def full_command_line() -> CommandSpec:
    return read_command_line()


def is_known(arguments: list[str], command: CommandSpec) -> bool:
    """Return whether each word that names an action or an option is one; values may be anything, and words missing."""
    if arguments[:1] and arguments[0].startswith('"'):  # a question
        return True
    flags = {flag for option in command.options for flag in option.flags}
    for index, word in enumerate(arguments):
        action = next((one for one in command.actions if one.path[-1] == word), None)
        if action is not None:
            return is_known(arguments[index + 1 :], action)
        if word.startswith("--") and word != "--" and word not in flags:
            return False
        if command.actions and not word.startswith("-") and arguments[index - 1 : index] != ["-p"]:
            return word.isupper()
    return True


@pytest.mark.parametrize("path", WRITTEN, ids=name)
def test_linked_files_and_sections_exist(path: Path) -> None:
    broken = []
    for link in _LINK.findall(prose(path)):
        file, _, section = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        if "://" in link:
            continue
        if not target.exists() or (section and section not in map(anchor, _HEADING.findall(target.read_text()))):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("path", WRITTEN, ids=name)
def test_commands_in_code_blocks_are_valid(path: Path) -> None:
    assert [" ".join(words) for words in commands_in_blocks(path) if not is_valid_command(words)] == []


@pytest.mark.parametrize("path", WRITTEN, ids=name)
def test_commands_in_prose_exist(path: Path) -> None:
    assert [" ".join(words) for words in commands_in_prose(path) if not is_known(words, full_command_line())] == []


@pytest.mark.parametrize("path", WRITTEN, ids=name)
def test_commands_with_placeholders_have_all_their_arguments(path: Path) -> None:
    patterns = [words for words in commands_in_prose(path) if any(word.isalpha() and word.isupper() for word in words)]
    assert [" ".join(words) for words in patterns if not is_valid_command(words)] == []


@pytest.mark.parametrize("path", WRITTEN, ids=name)
def test_settings_and_secrets_in_config_commands_exist(path: Path) -> None:
    known = {field.key for field in SettingsSchema().fields()} | set(list_secret_names()) | {"KEY", "NAME"}
    changed = [
        words[2]
        for words in [*commands_in_blocks(path), *commands_in_prose(path)]
        if words[:1] == ["config"] and words[1:2] in (["get"], ["set"], ["unset"]) and words[2:]
    ]
    assert [key for key in changed if key not in known and _of_any_name(key) not in known] == []


@pytest.mark.parametrize("path", WRITTEN, ids=name)
def test_settings_in_blocks_are_valid(path: Path, tmp_path: Path) -> None:
    profile = Profile("default", tmp_path)
    for block in settings_blocks(path):
        profile.config_file.write_text(block)
        assert load(profile, {}).faults == ()


@pytest.mark.parametrize("path", WRITTEN, ids=name)
def test_setup_examples_read_only_secrets_from_files_or_variables(path: Path) -> None:
    """Followed literally, the name of a file would be stored as the answer to a question that isn't secret."""
    answers = [
        words[index + 1].split("=", 1)
        for words in commands_in_blocks(path)
        if words[:1] == ["setup"]
        for index, word in enumerate(words)
        if word == "--chat"
    ]
    if answers:
        secret = {
            question.name if question.is_secret else f"{network}.{question.name}": question.is_secret
            and not question.public
            for network, setup in load_network_setups().items()
            for question in setup.questions
        }
        from_elsewhere = {key: bool(re.fullmatch(r"-|[A-Z_]+|.+\.txt", value)) for key, value in answers}
        assert from_elsewhere == {key: secret[key.removeprefix("WORK_")] for key in from_elsewhere}


@pytest.mark.parametrize("path", WRITTEN, ids=name)
def test_make_targets_exist(path: Path) -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    lines = [*shell_lines(path), *_INLINE.findall(prose(path))]
    named = [found[1] for line in lines if (found := re.match(r"(?:\w+=\S+ )?make (\w+)", line))]
    assert [target for target in named if target not in targets] == []


@pytest.mark.parametrize("path", WRITTEN, ids=name)
def test_named_files_exist(path: Path) -> None:
    named = [code for code in _INLINE.findall(prose(path)) if _OURS.fullmatch(code) and "NNNN" not in code]
    assert [file for file in named if not (ROOT / file).exists()] == []


@pytest.mark.parametrize(("path", "index"), PROGRAMS, ids=lambda one: name(one) if isinstance(one, Path) else str(one))
async def test_python_examples_run(path: Path, index: int, tmp_path: Path) -> None:
    async with ModelServer() as server:
        program = _talaria_with(server, tmp_path)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-W", "error", "-c", programs(path)[index]),
            env=program.environment(OPENAI_API_KEY="k"),
            cwd=tmp_path,
            stderr=asyncio.subprocess.PIPE,
        )
        _, errors = await process.communicate()
    assert (process.returncode, errors.decode()) == (0, "")


async def test_documented_custom_tool_answers_the_model(tmp_path: Path) -> None:
    block = next(one for one in programs(ROOT / "docs/how-to/use-from-python.md") if "in_stock" in one)
    async with ModelServer() as server:
        server.script(Say(calls=[Ask("in_stock", {"fruit": "apples"})]), Say("Twelve."))
        program = _talaria_with(server, tmp_path)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", block), env=program.environment(), cwd=tmp_path, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate()
        assert out.decode() == "Twelve.\n"
        assert server.received[1].json["messages"][-1]["content"] == "12"


def _talaria_with(server: ModelServer, home: Path) -> Program:
    """Return a home whose providers are the scripted server."""
    folder = home / "profiles" / "default"
    folder.mkdir(parents=True)
    accounts = "".join(f'[providers.{one}]\nbase_url = "{server.url}/v1"\n' for one in ("mine", "openai"))
    (folder / "config.toml").write_text(f'[model]\nprovider = "mine"\nname = "scripted"\n{accounts}')
    return Program(home)


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    listed = {(index.parent / link).resolve() for link in _LINK.findall(index.read_text())}
    assert [name(path) for path in files("docs", suffix=".md") if path != index and path not in listed] == []


def test_decisions_are_numbered_without_gaps() -> None:
    assert [int(path.name[:4]) for path in DECISIONS] == list(range(1, len(DECISIONS) + 1))


@pytest.mark.parametrize("path", DECISIONS, ids=name)
def test_decision_record_has_its_sections(path: Path) -> None:
    title, *sections = _HEADING.findall(path.read_text())
    assert title.startswith(path.name[:4])
    assert sections == ["Context", "Decision", "Consequences"]
    assert "\nStatus: " in path.read_text()


def test_command_checks_reject_invalid_commands() -> None:
    """The checks above would be useless if they accepted everything."""
    program = read_command_line()
    assert not is_valid_command(["sessions", "paint"])
    assert not is_valid_command(["backup", "--loudly"])
    assert not is_valid_command(["pairing", "approve", "CODE"])
    assert len(list(settings_blocks(ROOT / "docs/how-to/give-people-access.md"))) == 4
    assert not is_known(["gateway", "paint"], program)
    assert not is_known(["sessions", "list", "--loudly"], program)
    assert is_known(["sessions"], program)
    assert is_known(["-p", "work", "config", "get", "cli.time_zone"], program)
