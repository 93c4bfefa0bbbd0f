"""Examine shell code: what each program that it could run would do, in the folders where it could be."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec.structs import replace

from talaria.agent.approval.dangers import Danger
from talaria.agent.approval.embedded_code import embedded_code
from talaria.agent.approval.own_commands import own_danger, own_variable
from talaria.agent.approval.places import Places, is_start_up_name, mentions_credentials
from talaria.agent.approval.printed import FILTERS
from talaria.agent.approval.programs import (
    HARMLESS,
    INTERPRETERS,
    NETWORK,
    SHELLS,
    TALKERS,
    bundled_words,
    changes_rights_below,
    hides_subcommand,
    is_recursive,
    known_dangers,
    linked_words,
    read_words,
    starts_programs,
    subject_of,
    written_paths,
)
from talaria.agent.approval.script_files import ScriptFiles, is_script, script_of
from talaria.agent.approval.shell_builtins import apply_builtin
from talaria.agent.approval.shell_state import FOUND, ITEMS, UNKNOWN, Input, ShellState, SimpleCommand, Word
from talaria.agent.approval.shell_walk import ShellWalk
from talaria.agent.approval.wrappers import is_asked_wrapper, unwrap

_MOST_WORDS = 500
_COMPUTED = re.compile(f"[{UNKNOWN}{ITEMS}*?]|^\\$|\\[.")
_STANDARD_INPUT = ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
_BOMB = re.compile(r"(?<![\w:.])([\w:.]{1,64})[ \t]{0,9}\(\)\s{0,9}\{[^}]{0,200}?\1[ ]{0,9}\|&?[ ]{0,9}\1")
_MORE_RIGHTS = frozenset({"sudo", "doas"})
_DELETES = frozenset({"rm", "rmdir", "shred", "unlink", "find"})
_RUN_VARIABLES = frozenset(
    {
    "PS4", "GIT_SSH_COMMAND", "GIT_SSH", "GIT_PAGER", "PAGER", "MANPAGER", "EDITOR", "VISUAL", "GIT_EDITOR",
    "GIT_SEQUENCE_EDITOR", "GIT_EXTERNAL_DIFF", "GIT_PROXY_COMMAND", "GIT_ASKPASS", "SSH_ASKPASS", "SUDO_ASKPASS",
    "BROWSER", "LESSOPEN", "LESSCLOSE", "RSYNC_RSH", "FCEDIT",
}
)  # fmt: skip
_LOADED_VARIABLES = frozenset(
    {
    "BASH_ENV", "ENV", "LD_PRELOAD", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "PERL5OPT", "RUBYOPT", "GIT_CONFIG_COUNT",
    "GIT_CONFIG_GLOBAL", "BASH_FUNC", "SHELLOPTS", "BASHOPTS",
}
)  # fmt: skip
_DECLARATIONS = frozenset({"export", "declare", "typeset", "local", "readonly"})
_EVALUATES = frozenset({
    "let", "declare", "typeset", "local", "export", "readonly", "test", "[", "printf", "read", "unset", "mapfile",
})  # fmt: skip
# Words of these programs name other programs without running them.
_MENTIONS = HARMLESS | frozenset(
    {
    "git", "docker", "podman", "npm", "pnpm", "yarn", "kubectl", "brew", "apt", "apt-get", "apt-cache", "dpkg",
    "rpm", "dnf", "yum", "apk", "pacman", "snap", "gh", "go", "cargo", "pip", "pip3", "pipx", "systemctl", "aws",
    "gcloud", "man", "whatis", "apropos", "info", "help", "alias", "trap", "kill", "pkill", "killall", "pgrep",
    "pidof", "sudo", "rm", "mv", "cp", "chmod", "chown", "ln", "tee", "touch", "mkdir", "tar", "zip", "unzip",
    "sed", "awk", "find", "ssh", "scp", "rsync", "vim", "vi", "nano", "less", "more", "curl", "wget", "code",
    "make", "compgen", "complete", "dpkg-query", "rustup", "helm", "terraform",
}
)  # fmt: skip
_FOLLOWED = _DELETES | SHELLS | _MORE_RIGHTS | frozenset(
    {
    "dd", "eval", "chmod", "chown", "mv", "cp", "tee", "xargs", "env", "nohup", "timeout", "talaria", "python",
    "python3", "perl", "ruby", "node", "curl", "wget", "busybox", "command", "exec", "source", "truncate", "nice",
    "setsid",
}
)  # fmt: skip


class Examination:
    """Goes through shell code on every path that it could take, and notes what is dangerous."""

    def __init__(self, places: Places, environment: Mapping[str, str] | None = None) -> None:
        variables = {"HOME": str(places.home), **(environment or {})}
        self._places = places
        self._walk = ShellWalk(ShellState(variables, places.folder), self._command, self._doubt)
        self._scripts = ScriptFiles()
        self._downloads: set[str] = set()
        self.found: list[Danger] = []
        self.commands: list[SimpleCommand] = []
        for name, body in variables.items():
            if name.startswith("BASH_FUNC_"):
                self._walk.run(f"{name[10:].removesuffix('%%')} {body}")

    def examine(self, code: str) -> None:
        """Note the dangers of shell code in ``found``, and the commands that it may run in ``commands``."""
        if _BOMB.search(code):
            self._note(Danger("system", "starts copies of itself without end", fatal=True))
        self._walk.run(code)

    @property
    def subjects(self) -> list[str]:
        """The programs that it may run, as rules name them, less those that only look."""
        return [subject_of(command) for command in self.commands if command.program not in HARMLESS]

    def _command(self, command: SimpleCommand) -> None:
        for name, value in command.assignments:
            self._variable(name, value)
        for redirect in command.redirects:
            target = redirect.target.text
            if ">" in redirect.operator and not re.fullmatch(r"\d+-?|-", target):
                self._write(target, command)
                self._scripts.wrote(self._paths(target), command)
            elif redirect.operator == "<":
                self._read(target, command)
        self._unwrapped(command)

    def _unwrapped(self, command: SimpleCommand) -> None:
        """Examine what is left of a command when its wrappers are taken off."""
        rest = unwrap(command) if command.words else None
        if rest is None:
            if command.words:
                self._program(command)
            return
        inner = rest.command
        if command.program in _MORE_RIGHTS:
            subject = f"{command.program} {subject_of(inner)}".strip()
            self._note(Danger("privilege", f"runs with more rights ({command.program})", subject))
        if rest.doubt:
            self._doubt(rest.doubt)
        for name, value in inner.assignments[len(command.assignments) :]:
            self._variable(name, value)
        if rest.code:
            self._run_code(Input(rest.code), aside=True)
        with self._walk.aside():
            for name, value in inner.assignments:
                self._walk.state.assign(name, value)
                self._walk.state.exported.add(name)
            folders, is_builtin = self._walk.state.folders, inner.program in ("cd", "pushd", "popd")
            self._unwrapped(inner)
            folders = self._walk.state.folders if is_builtin else folders
        self._walk.state.enter(folders)

    def _program(self, command: SimpleCommand) -> None:
        program = command.program
        if program in ("{", "}", "(", ")", "!", "then", "do", "else", ""):  # the grammar missed a compound command
            self._unwrapped(replace(command, words=command.words[1:]))
            return
        self.commands.append(command)
        if command.words[0].sources or _COMPUTED.search(program):
            self._note(Danger("code", "runs a program whose name is computed", narrow=True))
        if self._walk.calls(command) and command.input is not None:
            self._note(Danger("system", "starts copies of itself without end", fatal=True))
        apply_builtin(self._walk.state, command, self._places)
        self._builtin(command)
        self._evaluated(command)
        self._code(command)
        self._find_exec(command)
        for embedded in embedded_code(command):
            self._note(Danger("code", embedded.how, subject_of(command)))
            self._run_code(Input(embedded.code), aside=True)
        self._others(command)
        self._effects(command)

    def _effects(self, command: SimpleCommand) -> None:
        """Note what is known of a program, and what it reads, writes and deletes."""
        if len(command.words) > _MOST_WORDS:
            self._doubt("gives a program too many words to look at")
            command = replace(command, words=command.words[:_MOST_WORDS])
        for danger in (*known_dangers(command), *own_danger(command)):
            self._note(danger)
        if hides_subcommand(command):
            self._note(Danger("code", f"gives {command.program} words that are computed", narrow=True))
        for text in written_paths(command):
            self._write(text, command)
            self._scripts.wrote(self._paths(text), None)
        for text in read_words(command) if command.program not in TALKERS else ():
            self._read(text, command)
        self._reach(command)
        if command.program in _DELETES and is_recursive(command):
            for text in written_paths(command):
                self._delete_tree(text)
        self._run_download(command)

    def _reach(self, command: SimpleCommand) -> None:
        """Note what a program makes reachable, changes or reads as a whole."""
        for text in linked_words(command):
            if any(map(self._places.is_outside, self._paths(text) or ())):
                self._note(
                    Danger("outside", f"links to a place outside the working folder: {text}", subject_of(command))
                )
        if changes_rights_below(command) and any(
            Path("/") in (self._paths(one) or ()) for one in written_paths(command)
        ):
            self._note(Danger("system", "changes the rights of the whole machine", fatal=True))
        for text in bundled_words(command):
            if any(map(self._places.holds_secrets, self._paths(text) or ())):
                self._note(Danger("credentials", f"reads all of {text}, credentials included", subject_of(command)))

    def _builtin(self, command: SimpleCommand) -> None:
        """Examine what builtins of the shell evaluate or set."""
        program = command.program
        for text in command.arguments if program in _EVALUATES else ():
            self._walk.evaluate(text)
        for text in command.arguments if program in _DECLARATIONS else ():
            name, equals, value = text.partition("=")
            if equals:
                self._variable(name, value)
        if (program, *command.arguments[:1]) == ("hash", "-p") or "expand_aliases" in command.arguments:
            self._doubt("changes what the names of programs mean")
        if program == "ulimit" and set(command.arguments) - {"-a", "-n", "-u", "-S", "-H"}:
            self._doubt("changes limits of the system for what it starts")
        if program in _DECLARATIONS and any(re.match(r"-\w*n", text) for text in command.arguments):
            self._doubt("sets variables under other names")

    def _code(self, command: SimpleCommand) -> None:
        """Examine code that a program is given: as an argument, by a pipe, by a here-document, in a file."""
        program = command.program
        if program in INTERPRETERS:
            self._interpreted(command)
        elif program in SHELLS:
            self._shell(command)
        elif program in ("source", "."):
            self._source(command)
        elif program == "ssh":
            code = script_of(command, "bcDEeFIiJLlmOopQRSWw")
            self._run_code(Input(" ".join(word.text for word in code[1:])), aside=True)
        else:
            self._script_by_name(command)

    def _script_by_name(self, command: SimpleCommand) -> None:
        """Examine a program that is a shell script: by its path, or in a folder of the search path that is ours."""
        name = command.words[0].text
        folders = [""] if "/" in name else self._walk.state.value("PATH").split(":")
        for folder in folders:
            paths = self._paths(f"{folder}/{name}" if folder else name)
            if folder and paths is not None and self._places.is_outside(paths[0]):
                continue
            if is_script(paths) or self._scripts.is_new(paths):
                self._script(Word(f"{folder}/{name}" if folder else name), command.arguments, aside=True)
                return

    def _evaluated(self, command: SimpleCommand) -> None:
        """Examine the code that builtins of the shell are given as words."""
        words = command.words[1:]
        if command.program == "eval":
            sources = tuple(source for word in words for source in word.sources)
            self._run_code(Input(" ".join(word.text for word in words), sources))
        elif command.program == "trap" and words and words[0].text not in ("-", "-p", "-l"):
            self._run_code(Input(words[0].text, words[0].sources))
        elif command.program == "alias":
            for word in words:
                self._run_code(Input(word.text.partition("=")[2], word.sources))

    def _shell(self, command: SimpleCommand) -> None:
        given = _inline_code(command.words)
        script = script_of(command, "oO")
        if given is not None:
            code, arguments = given
            self._run_code(Input(code.text, code.sources), arguments[1:], aside=True)
        elif script and "-s" not in command.arguments and script[0].text not in _STANDARD_INPUT:
            self._script(script[0], tuple(word.text for word in script[1:]), aside=True)
        elif command.input is not None:
            self._run_input(command.input)

    def _run_input(self, given: Input) -> None:
        if given.path:
            self._script(Word(given.path), (), aside=True)
            return
        if given.piped or given.text == UNKNOWN:
            self._note(_hidden_code(given.sources, "pipes text into a shell"))
        self._run_code(given, aside=True)

    def _source(self, command: SimpleCommand) -> None:
        words = command.words[1:]
        if not words:
            return
        if words[0].text in _STANDARD_INPUT and command.input is not None:
            self._run_input(command.input)
            return
        if words[0].sources:
            self._note(_hidden_code(words[0].sources, "runs what another command prints as shell code"))
        else:
            self._script(words[0], tuple(word.text for word in words[1:]), aside=False)

    def _run_code(self, given: Input, arguments: tuple[str, ...] | None = None, *, aside: bool = False) -> None:
        """Examine shell code, in this shell or in another one; ask where part of it is not known."""
        if UNKNOWN in given.text:
            self._note(_hidden_code(given.sources, "runs shell code that is computed"))
        elif "" in given.sources:
            self._note(_hidden_code(given.sources, "runs what another command prints as shell code"))
        if given.text == UNKNOWN:
            return
        if aside:
            self._walk.run_aside(given.text, arguments)
        else:
            self._walk.run(given.text)

    def _script(self, word: Word, arguments: tuple[str, ...], *, aside: bool) -> None:
        """Examine the shell script in a file."""
        if word.sources:
            self._note(_hidden_code(word.sources, "runs what another command prints as shell code"))
            return
        paths = self._paths(word.text)
        code = self._scripts.read(paths)
        for path in (paths or ())[:1]:
            self._read(str(path), SimpleCommand((Word("source"),)))
        if code is None:
            self._note(Danger("code", f"runs a script that cannot be read: {_shown(word.text)}", narrow=True))
        elif code:
            before, self._walk.state.script = self._walk.state.script, word.text
            self._run_code(Input(code), arguments, aside=aside)
            self._walk.state.script = before

    def _interpreted(self, command: SimpleCommand) -> None:
        fed = command.input
        plain = [text for text in command.arguments if text != "-"]
        if fed is not None and fed.piped and not plain:
            self._note(_hidden_code(fed.sources, f"pipes text into {command.program}"))
        computed = next((word for word in command.words[1:] if word.sources), None)
        if computed is not None:
            self._note(_hidden_code(computed.sources, "runs what another command prints as code"))
        body = fed.text if fed is not None and not fed.piped and not fed.path else ""
        code = "\n".join((body, *(text for text in command.arguments if " " in text or "(" in text)))
        if mentions_credentials(code):
            self._note(Danger("credentials", "runs code that names a place of credentials", subject_of(command)))
        if starts_programs(code):
            self._note(Danger("code", "runs code that starts programs or deletes files", subject_of(command)))
        if "talaria" in code and ("main" in code or "runpy" in code):
            self._note(Danger("privilege", "runs Talaria's own command line", subject_of(command), narrow=True))

    def _find_exec(self, command: SimpleCommand) -> None:
        if command.program != "find":
            return
        plain = [text for text in command.arguments if text[:1] not in ("-", "(", "!")]
        start = plain[0] if plain and plain[0] == command.arguments[0] else "."
        found = f"{start}/{FOUND}" if FILTERS & set(command.arguments) else start
        words = tuple(replace(word, text=word.text.replace("{}", found)) for word in command.words)
        for index, word in enumerate(words):
            if word.text in ("-exec", "-execdir", "-ok", "-okdir"):
                tail = words[index + 1 :]
                end = next((at for at, one in enumerate(tail) if one.text in (";", "+")), len(tail))
                self._unwrapped(replace(command, words=tail[:end], redirects=(), input=None))

    def _others(self, command: SimpleCommand) -> None:
        """Examine what a program that is not known, or not followed, may run."""
        program = command.program
        asked = is_asked_wrapper(program)
        if asked:
            self._note(Danger("code", f"runs another command with {program}", subject_of(command)))
        elif program in _MENTIONS or program in SHELLS or program in INTERPRETERS:
            return
        for index, word in enumerate(command.words[1:], 1):
            if asked and (" " in word.text or ";" in word.text):
                self._run_code(Input(word.text), aside=True)
            if word.text.rpartition("/")[2] in _FOLLOWED:
                with self._walk.aside():
                    self._unwrapped(replace(command, words=command.words[index:], redirects=()))
                return

    def _variable(self, name: str, value: str) -> None:
        """Examine a variable that has programs run something."""
        if name in _RUN_VARIABLES:
            self._run_code(Input(value), aside=True)
        elif name in _LOADED_VARIABLES or name.startswith("BASH_FUNC_"):
            self._note(Danger("code", f"sets {name}, which has programs run other code", name))
        for danger in own_variable(name):
            self._note(danger)

    def _write(self, text: str, command: SimpleCommand) -> None:
        paths, subject = self._paths(text), subject_of(command)
        if paths is None:
            sensitive = mentions_credentials(text) or is_start_up_name(text)
            reason = "writes to a path that is computed" + (f": {_shown(text)}" if sensitive else "")
            self._note(Danger("start-up" if sensitive else "outside", reason, subject))
            return
        danger = self._places.write_danger(paths, subject)
        if danger is not None:
            self._note(danger)

    def _read(self, text: str, command: SimpleCommand) -> None:
        paths = self._paths(text)
        if paths is None:
            if mentions_credentials(text):
                self._note(Danger("credentials", f"touches credentials: {_shown(text)}", subject_of(command)))
            return
        secret = next((path for path in paths if self._places.is_secret(path)), None)
        if secret is not None:
            self._note(Danger("credentials", f"touches credentials: {secret}", subject_of(command)))

    def _delete_tree(self, text: str) -> None:
        whole = text.rstrip("/*") or ("/" if text.startswith("/") else ".")
        paths = self._paths(whole)
        if paths is None:
            self._note(Danger("deletion", "deletes a folder whose name is computed", narrow=True))
            return
        for path in paths:
            if self._places.is_vital(path):
                self._note(Danger("deletion", f"deletes {path} with all that is in it", fatal=True))
            elif self._places.folder.is_relative_to(path) or path.name == ".git":
                self._note(Danger("deletion", f"deletes all of {path}", narrow=True))
            elif self._places.is_outside(path):
                self._note(Danger("deletion", f"deletes {path}, outside the working folder", narrow=True))

    def _run_download(self, command: SimpleCommand) -> None:
        """Note the download of a program that the same line runs."""
        if command.program in NETWORK or (command.input is not None and NETWORK & set(command.input.sources)):
            redirects = (one.target.text for one in command.redirects if ">" in one.operator)
            self._downloads |= {Path(text).name for text in (*written_paths(command), *redirects)}
            self._downloads |= {text.rpartition("/")[2] for text in command.arguments if "://" in text}
            return
        is_runner = command.program in SHELLS or command.program in INTERPRETERS or command.program in ("source", ".")
        script = [word.text for word in script_of(command, "oO")][:1] if is_runner else [command.program]
        if script and Path(script[0]).name in self._downloads:
            self._note(Danger("code", "runs a program that it downloads", narrow=True))

    def _paths(self, text: str) -> tuple[Path, ...] | None:
        """Return all paths that a text may name here; ``None`` where that is not known."""
        if text.startswith("/"):
            return self._places.paths(text)
        folders = self._walk.state.folders
        if folders is None:
            return self._places.paths(text) if text.startswith("~") else None
        found = [self._places.paths(text, folder) for folder in folders]
        if any(paths is None for paths in found):
            return None
        return tuple(dict.fromkeys(path for paths in found for path in paths or ()))

    def _doubt(self, reason: str) -> None:
        self._note(Danger("code", reason, narrow=True))

    def _note(self, danger: Danger) -> None:
        if danger not in self.found:
            self.found.append(danger)


def _inline_code(words: tuple[Word, ...]) -> tuple[Word, tuple[str, ...]] | None:
    """Return the code behind ``-c`` and the words after it; bash takes the first word that is no option."""
    is_given, skip = False, False
    for index, word in enumerate(words[1:], 1):
        if skip:
            skip = False
        elif re.match(r"[-+]\w", word.text) and not word.text.startswith("--"):
            is_given = is_given or (word.text.startswith("-") and "c" in word.text)
            skip = word.text[-1] in "oO"
        elif word.text == "--":
            continue
        elif not word.text.startswith("--"):
            return (word, tuple(one.text for one in words[index + 1 :])) if is_given else None
        elif word.text in ("--rcfile", "--init-file"):
            skip = True
    return None


def _hidden_code(sources: Iterable[str], reason: str) -> Danger:
    if NETWORK & set(sources):
        reason = "runs code that comes from the network"
    return Danger("code", reason, narrow=True)


def _shown(text: str) -> str:
    return text.replace(UNKNOWN, "…")
