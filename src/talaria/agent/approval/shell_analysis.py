"""Examine shell code: the effects of each program it could run, in each possible folder."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec.structs import replace

from talaria.agent.approval.grants import Danger
from talaria.agent.approval.nested_commands import (
    ScriptFiles,
    find_embedded_code,
    is_asked_wrapper,
    is_script,
    script_of,
    unwrap,
)
from talaria.agent.approval.paths import PathRules, is_start_up_name, mentions_credentials
from talaria.agent.approval.programs import (
    HARMLESS,
    INTERPRETERS,
    NETWORK,
    PRINTING_PROGRAMS,
    SHELLS,
    changes_rights_below,
    find_own_command_dangers,
    find_program_dangers,
    find_variable_dangers,
    hides_subcommand,
    is_recursive,
    list_bundled_paths,
    list_link_targets,
    list_read_paths,
    list_written_paths,
    starts_programs,
    subject_of,
)
from talaria.agent.approval.shell_state import (
    FIND_FILTERS,
    FOUND,
    ITEMS,
    UNKNOWN,
    ShellInput,
    ShellState,
    ShellWord,
    SimpleCommand,
    apply_builtin,
)
from talaria.agent.approval.shell_walk import ShellWalk

_MAX_WORDS = 500
_COMPUTED = re.compile(f"[{UNKNOWN}{ITEMS}*?]|^\\$|\\[.")
_STANDARD_INPUT = ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
_SINKS = frozenset(("/dev/null", "/dev/stdout", "/dev/stderr"))
_FORK_BOMB = re.compile(r"(?<![\w:.])([\w:.]{1,64})[ \t]{0,9}\(\)\s{0,9}\{[^}]{0,200}?\1[ ]{0,9}\|&?[ ]{0,9}\1")
_PRIVILEGE_PROGRAMS = frozenset({"sudo", "doas"})
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
# Arguments of these programs name other programs without running them.
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
_FOLLOWED = _DELETES | SHELLS | _PRIVILEGE_PROGRAMS | frozenset(
    {
    "dd", "eval", "chmod", "chown", "mv", "cp", "tee", "xargs", "env", "nohup", "timeout", "talaria", "python",
    "python3", "perl", "ruby", "node", "curl", "wget", "busybox", "command", "exec", "source", "truncate", "nice",
    "setsid",
}
)  # fmt: skip


class ShellExamination:
    """An examination of shell code on every possible path, recording the dangers."""

    def __init__(self, path_rules: PathRules, environment: Mapping[str, str] | None = None) -> None:
        variables = {"HOME": str(path_rules.home), **(environment or {})}
        self._path_rules = path_rules
        self._walk = ShellWalk(ShellState(variables, path_rules.folder), self._examine_command, self._add_doubt)
        self._scripts = ScriptFiles()
        self._downloads: set[str] = set()
        self.found: list[Danger] = []
        self.commands: list[SimpleCommand] = []
        self.writes = False
        for name, body in variables.items():
            if name.startswith("BASH_FUNC_"):
                self._walk.run(f"{name[10:].removesuffix('%%')} {body}")

    def examine(self, code: str) -> None:
        """Record the dangers of shell code in ``found``, its ``commands``, and whether it ``writes`` files."""
        if _FORK_BOMB.search(code):
            self._note(Danger("system", "starts copies of itself endlessly", fatal=True))
        self._walk.run(code)

    @property
    def subjects(self) -> list[str]:
        """Return the programs it may run, as rules name them, except those that only read."""
        return [subject_of(command) for command in self.commands if command.program not in HARMLESS]

    def _examine_command(self, command: SimpleCommand) -> None:
        for name, value in command.assignments:
            self._examine_variable(name, value)
        for redirect in command.redirects:
            target = redirect.target.text
            if ">" in redirect.operator and not re.fullmatch(r"\d+-?|-", target):
                self._examine_write(target, command)
                self._scripts.record_write(self._resolve_paths(target), command)
            elif redirect.operator == "<":
                self._examine_read(target, command)
        self._examine_unwrapped(command)

    def _examine_unwrapped(self, command: SimpleCommand) -> None:
        """Examine a command after removing its wrappers."""
        rest = unwrap(command) if command.words else None
        if rest is None:
            if command.words:
                self._examine_program(command)
            return
        inner = rest.command
        if command.program in _PRIVILEGE_PROGRAMS:
            subject = f"{command.program} {subject_of(inner)}".strip()
            self._note(Danger("privilege", f"runs with elevated privileges ({command.program})", subject))
        if rest.doubt:
            self._add_doubt(rest.doubt)
        for name, value in inner.assignments[len(command.assignments) :]:
            self._examine_variable(name, value)
        if rest.code:
            self._run_code(ShellInput(rest.code), aside=True)
        with self._walk.discarding_changes():
            for name, value in inner.assignments:
                self._walk.state.assign(name, value)
                self._walk.state.exported.add(name)
            folders, is_builtin = self._walk.state.folders, inner.program in ("cd", "pushd", "popd")
            self._examine_unwrapped(inner)
            folders = self._walk.state.folders if is_builtin else folders
        self._walk.state.enter(folders)

    def _examine_program(self, command: SimpleCommand) -> None:
        program = command.program
        if program in ("{", "}", "(", ")", "!", "then", "do", "else", ""):  # the grammar missed a compound command
            self._examine_unwrapped(replace(command, words=command.words[1:]))
            return
        self.commands.append(command)
        if command.words[0].sources or _COMPUTED.search(program):
            self._note(Danger("code", "runs a program whose name is computed", narrow=True))
        if self._walk.walk_called_function(command) and command.input is not None:
            self._note(Danger("system", "starts copies of itself endlessly", fatal=True))
        apply_builtin(self._walk.state, command, self._path_rules)
        self._examine_builtin(command)
        self._examine_evaluated(command)
        self._examine_code(command)
        self._find_exec(command)
        for embedded in find_embedded_code(command):
            self._note(Danger("code", embedded.how, subject_of(command)))
            self._run_code(ShellInput(embedded.code), aside=True)
        self._examine_others(command)
        self._examine_effects(command)

    def _examine_effects(self, command: SimpleCommand) -> None:
        """Record the known dangers of a program, and what it reads, writes and deletes."""
        if len(command.words) > _MAX_WORDS:
            self._add_doubt("passes too many arguments to check")
            command = replace(command, words=command.words[:_MAX_WORDS])
        for danger in (*find_program_dangers(command), *find_own_command_dangers(command)):
            self._note(danger)
        if hides_subcommand(command):
            self._note(Danger("code", f"passes computed arguments to {command.program}", narrow=True))
        for text in list_written_paths(command):
            self._examine_write(text, command)
            self._scripts.record_write(self._resolve_paths(text), None)
        for text in list_read_paths(command) if command.program not in PRINTING_PROGRAMS else ():
            self._examine_read(text, command)
        self._examine_reach(command)
        if command.program in _DELETES and is_recursive(command):
            for text in list_written_paths(command):
                self._delete_tree(text)
        self._run_download(command)

    def _examine_reach(self, command: SimpleCommand) -> None:
        """Record what a program links to, changes or reads as a whole."""
        for text in list_link_targets(command):
            if any(map(self._path_rules.is_outside, self._resolve_paths(text) or ())):
                self._note(
                    Danger("outside", f"links to a path outside the working folder: {text}", subject_of(command))
                )
        if changes_rights_below(command) and any(
            Path("/") in (self._resolve_paths(one) or ()) for one in list_written_paths(command)
        ):
            self._note(Danger("system", "changes permissions of the whole system", fatal=True))
        for text in list_bundled_paths(command):
            if any(map(self._path_rules.contains_secrets, self._resolve_paths(text) or ())):
                self._note(
                    Danger("credentials", f"reads everything in {text}, including credentials", subject_of(command))
                )

    def _examine_builtin(self, command: SimpleCommand) -> None:
        """Examine what shell builtins evaluate or set."""
        program = command.program
        for text in command.arguments if program in _EVALUATES else ():
            self._walk.evaluate(text)
        for text in command.arguments if program in _DECLARATIONS else ():
            name, equals, value = text.partition("=")
            if equals:
                self._examine_variable(name, value)
        if (program, *command.arguments[:1]) == ("hash", "-p") or "expand_aliases" in command.arguments:
            self._add_doubt("redefines program names")
        if program == "ulimit" and set(command.arguments) - {"-a", "-n", "-u", "-S", "-H"}:
            self._add_doubt("changes system limits for the programs it starts")
        if program in _DECLARATIONS and any(re.match(r"-\w*n", text) for text in command.arguments):
            self._add_doubt("sets variables through other names")

    def _examine_code(self, command: SimpleCommand) -> None:
        """Examine code passed to a program: as an argument, by a pipe, by a here-document, in a file."""
        program = command.program
        if program in INTERPRETERS:
            self._examine_interpreter(command)
        elif program in SHELLS:
            self._examine_shell(command)
        elif program in ("source", "."):
            self._examine_source(command)
        elif program == "ssh":
            code = script_of(command, "bcDEeFIiJLlmOopQRSWw")
            self._run_code(ShellInput(" ".join(word.text for word in code[1:])), aside=True)
        else:
            self._examine_script_by_name(command)

    def _examine_script_by_name(self, command: SimpleCommand) -> None:
        """Examine a program that is a shell script, given by path or found in our search path."""
        name = command.words[0].text
        folders = [""] if "/" in name else self._walk.state.get_value("PATH").split(":")
        for folder in folders:
            paths = self._resolve_paths(f"{folder}/{name}" if folder else name)
            if folder and paths is not None and self._path_rules.is_outside(paths[0]):
                continue
            if is_script(paths) or self._scripts.is_new(paths):
                self._examine_script(ShellWord(f"{folder}/{name}" if folder else name), command.arguments, aside=True)
                return

    def _examine_evaluated(self, command: SimpleCommand) -> None:
        """Examine the code passed to shell builtins as arguments."""
        words = command.words[1:]
        if command.program == "eval":
            sources = tuple(source for word in words for source in word.sources)
            self._run_code(ShellInput(" ".join(word.text for word in words), sources))
        elif command.program == "trap" and words and words[0].text not in ("-", "-p", "-l"):
            self._run_code(ShellInput(words[0].text, words[0].sources))
        elif command.program == "alias":
            for word in words:
                self._run_code(ShellInput(word.text.partition("=")[2], word.sources))

    def _examine_shell(self, command: SimpleCommand) -> None:
        shell_input = _find_inline_code(command.words)
        script = script_of(command, "oO")
        if shell_input is not None:
            code, arguments = shell_input
            self._run_code(ShellInput(code.text, code.sources), arguments[1:], aside=True)
        elif script and "-s" not in command.arguments and script[0].text not in _STANDARD_INPUT:
            self._examine_script(script[0], tuple(word.text for word in script[1:]), aside=True)
        elif command.input is not None:
            self._run_input(command.input)

    def _run_input(self, shell_input: ShellInput) -> None:
        if shell_input.path:
            self._examine_script(ShellWord(shell_input.path), (), aside=True)
            return
        if shell_input.piped or shell_input.text == UNKNOWN:
            self._note(_make_hidden_code_danger(shell_input.sources, "pipes text into a shell"))
        self._run_code(shell_input, aside=True)

    def _examine_source(self, command: SimpleCommand) -> None:
        words = command.words[1:]
        if not words:
            return
        if words[0].text in _STANDARD_INPUT and command.input is not None:
            self._run_input(command.input)
            return
        if words[0].sources:
            self._note(_make_hidden_code_danger(words[0].sources, "runs the output of another command as shell code"))
        else:
            self._examine_script(words[0], tuple(word.text for word in words[1:]), aside=False)

    def _run_code(
        self, shell_input: ShellInput, arguments: tuple[str, ...] | None = None, *, aside: bool = False
    ) -> None:
        """Examine shell code, in this shell or in another one; ask if part of it is unknown."""
        if UNKNOWN in shell_input.text:
            self._note(_make_hidden_code_danger(shell_input.sources, "runs shell code that is computed"))
        elif "" in shell_input.sources:
            self._note(
                _make_hidden_code_danger(shell_input.sources, "runs the output of another command as shell code")
            )
        if shell_input.text == UNKNOWN:
            return
        if aside:
            self._walk.run_aside(shell_input.text, arguments)
        else:
            self._walk.run(shell_input.text)

    def _examine_script(self, word: ShellWord, arguments: tuple[str, ...], *, aside: bool) -> None:
        """Examine the shell script in a file."""
        if word.sources:
            self._note(_make_hidden_code_danger(word.sources, "runs the output of another command as shell code"))
            return
        paths = self._resolve_paths(word.text)
        code = self._scripts.read(paths)
        for path in (paths or ())[:1]:
            self._examine_read(str(path), SimpleCommand((ShellWord("source"),)))
        if code is None:
            self._note(Danger("code", f"runs a script that can't be read: {_make_readable(word.text)}", narrow=True))
        elif code:
            before, self._walk.state.script = self._walk.state.script, word.text
            self._run_code(ShellInput(code), arguments, aside=aside)
            self._walk.state.script = before

    def _examine_interpreter(self, command: SimpleCommand) -> None:
        stdin = command.input
        plain = [text for text in command.arguments if text != "-"]
        if stdin is not None and stdin.piped and not plain:
            self._note(_make_hidden_code_danger(stdin.sources, f"pipes text into {command.program}"))
        computed = next((word for word in command.words[1:] if word.sources), None)
        if computed is not None:
            self._note(_make_hidden_code_danger(computed.sources, "runs the output of another command as code"))
        body = stdin.text if stdin is not None and not stdin.piped and not stdin.path else ""
        code = "\n".join((body, *(text for text in command.arguments if " " in text or "(" in text)))
        if mentions_credentials(code):
            self._note(Danger("credentials", "runs code that mentions a credentials folder", subject_of(command)))
        if starts_programs(code):
            self._note(Danger("code", "runs code that starts programs or deletes files", subject_of(command)))
        if "talaria" in code and ("main" in code or "runpy" in code):
            self._note(Danger("privilege", "runs the talaria command", subject_of(command), narrow=True))

    def _find_exec(self, command: SimpleCommand) -> None:
        if command.program != "find":
            return
        plain = [text for text in command.arguments if text[:1] not in ("-", "(", "!")]
        start = plain[0] if plain and plain[0] == command.arguments[0] else "."
        found = f"{start}/{FOUND}" if FIND_FILTERS & set(command.arguments) else start
        words = tuple(replace(word, text=word.text.replace("{}", found)) for word in command.words)
        for index, word in enumerate(words):
            if word.text in ("-exec", "-execdir", "-ok", "-okdir"):
                tail = words[index + 1 :]
                end = next((at for at, one in enumerate(tail) if one.text in (";", "+")), len(tail))
                self._examine_unwrapped(replace(command, words=tail[:end], redirects=(), input=None))

    def _examine_others(self, command: SimpleCommand) -> None:
        """Examine what an unknown program may run."""
        program = command.program
        asked = is_asked_wrapper(program)
        if asked:
            self._note(Danger("code", f"runs another command through {program}", subject_of(command)))
        elif program in _MENTIONS or program in SHELLS or program in INTERPRETERS:
            return
        for index, word in enumerate(command.words[1:], 1):
            if asked and (" " in word.text or ";" in word.text):
                self._run_code(ShellInput(word.text), aside=True)
            if word.text.rpartition("/")[2] in _FOLLOWED:
                with self._walk.discarding_changes():
                    self._examine_unwrapped(replace(command, words=command.words[index:], redirects=()))
                return

    def _examine_variable(self, name: str, value: str) -> None:
        """Examine a variable that makes programs run something."""
        if name in _RUN_VARIABLES:
            self._run_code(ShellInput(value), aside=True)
        elif name in _LOADED_VARIABLES or name.startswith("BASH_FUNC_"):
            self._note(Danger("code", f"sets {name}, which makes programs run other code", name))
        for danger in find_variable_dangers(name):
            self._note(danger)

    def _examine_write(self, text: str, command: SimpleCommand) -> None:
        self.writes = self.writes or text not in _SINKS
        paths, subject = self._resolve_paths(text), subject_of(command)
        if paths is None:
            sensitive = mentions_credentials(text) or is_start_up_name(text)
            reason = "writes to a path that is computed" + (f": {_make_readable(text)}" if sensitive else "")
            self._note(Danger("start-up" if sensitive else "outside", reason, subject))
            return
        danger = self._path_rules.write_danger(paths, subject)
        if danger is not None:
            self._note(danger)

    def _examine_read(self, text: str, command: SimpleCommand) -> None:
        paths = self._resolve_paths(text)
        if paths is None:
            if mentions_credentials(text):
                self._note(Danger("credentials", f"touches credentials: {_make_readable(text)}", subject_of(command)))
            return
        secret = next((path for path in paths if self._path_rules.is_secret(path)), None)
        if secret is not None:
            self._note(Danger("credentials", f"touches credentials: {secret}", subject_of(command)))

    def _delete_tree(self, text: str) -> None:
        whole = text.rstrip("/*") or ("/" if text.startswith("/") else ".")
        paths = self._resolve_paths(whole)
        if paths is None:
            self._note(Danger("deletion", "deletes a folder whose name is computed", narrow=True))
            return
        for path in paths:
            if self._path_rules.is_vital(path):
                self._note(Danger("deletion", f"deletes {path} and everything in it", fatal=True))
            elif self._path_rules.folder.is_relative_to(path) or path.name == ".git":
                self._note(Danger("deletion", f"deletes everything in {path}", narrow=True))
            elif self._path_rules.is_outside(path):
                self._note(Danger("deletion", f"deletes {path}, outside the working folder", narrow=True))

    def _run_download(self, command: SimpleCommand) -> None:
        """Record the download of a program that the same line runs."""
        if command.program in NETWORK or (command.input is not None and NETWORK & set(command.input.sources)):
            redirects = (one.target.text for one in command.redirects if ">" in one.operator)
            self._downloads |= {Path(text).name for text in (*list_written_paths(command), *redirects)}
            self._downloads |= {text.rpartition("/")[2] for text in command.arguments if "://" in text}
            return
        is_runner = command.program in SHELLS or command.program in INTERPRETERS or command.program in ("source", ".")
        script = [word.text for word in script_of(command, "oO")][:1] if is_runner else [command.program]
        if script and Path(script[0]).name in self._downloads:
            self._note(Danger("code", "downloads a program and runs it", narrow=True))

    def _resolve_paths(self, text: str) -> tuple[Path, ...] | None:
        """Return all paths that a text may name here; ``None`` if unknown."""
        if text.startswith("/"):
            return self._path_rules.resolve_paths(text)
        folders = self._walk.state.folders
        if folders is None:
            return self._path_rules.resolve_paths(text) if text.startswith("~") else None
        found = [self._path_rules.resolve_paths(text, folder) for folder in folders]
        if any(paths is None for paths in found):
            return None
        return tuple(dict.fromkeys(path for paths in found for path in paths or ()))

    def _add_doubt(self, reason: str) -> None:
        self._note(Danger("code", reason, narrow=True))

    def _note(self, danger: Danger) -> None:
        if danger not in self.found:
            self.found.append(danger)


def _find_inline_code(words: tuple[ShellWord, ...]) -> tuple[ShellWord, tuple[str, ...]] | None:
    """Return the code after ``-c`` and the arguments after it; bash takes the first one that is not an option."""
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


def _make_hidden_code_danger(sources: Iterable[str], reason: str) -> Danger:
    if NETWORK & set(sources):
        reason = "runs code from the network"
    return Danger("code", reason, narrow=True)


def _make_readable(text: str) -> str:
    return text.replace(UNKNOWN, "…")
