"""`talaria completion`: print completion scripts for bash, zsh and fish, and the values that they ask for.

A script reads the words before the cursor and tracks a path (``talaria config``), the option that needs a value, and
the number of positional arguments so far. Together they form a key that is looked up here.
"""

import argparse
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from shlex import join, quote

from talaria.cli.parser_tree import Argument, CommandSpec
from talaria.cli.services import Services
from talaria.contracts.stores.sessions import SessionFilter
from talaria.core.errors import Refused
from talaria.settings.schema import SettingsSchema

_BASH_SCRIPT = r"""# Completion of talaria for bash, made by `talaria completion bash`.

_talaria_offer() {
    local candidate
    while IFS=$'\t' read -r candidate _; do
        [[ $candidate != "$current"* ]] || COMPREPLY+=("$(printf %q "$candidate")")
    done
}

_talaria_words() {
    _talaria_offer < <(printf '%s\n' "$@")
}

_talaria_values() {
    case $1 in
        files) compopt -o default ;;
        folders) compopt -o dirnames ;;
        *) _talaria_offer < <("$program" ${profile:+-p "$profile"} completion --values "$1" 2>/dev/null) ;;
    esac
}

_talaria() {
    local program=$1 current=${COMP_WORDS[COMP_CWORD]}
    local path=talaria option='' profile='' plain='' position=0 word
    COMPREPLY=()
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        if [[ $word == '=' ]]; then
            continue
        elif [[ -n $option ]]; then
            [[ $option != -p && $option != --profile ]] || profile=$word
            option=''
        elif [[ -z $plain && $word == -- ]]; then
            plain=yes
        elif [[ -z $plain && $word == -* ]]; then
            case "$path $word" in
                @FLAGS@
            esac
        else
            case "$path $word" in
                @STEPS@
                *) position=$((position + 1)) ;;
            esac
        fi
    done
    [[ $current != '=' ]] || current=''
    local key="$path $position"
    [[ -n $plain || $current != -* ]] || key="$path -"
    [[ -z $option ]] || key="$path $option"
    case $key in
        @OFFERS@
    esac
}

complete -F _talaria talaria
"""
_FISH_SCRIPT = r"""# Completion of talaria for fish, made by `talaria completion fish`.

function __talaria_values
    switch $argv[1]
        case files
            __fish_complete_path $argv[3]
        case folders
            __fish_complete_directories $argv[3]
        case '*'
            set -l program (commandline -opc)[1]
            $program $argv[4..] completion --values $argv[1] 2>/dev/null | string replace -r '^' -- $argv[2]
    end
end

function __talaria_words
    printf '%s\n' $argv[2..] | string replace -r '^' -- $argv[1]
end

function __talaria
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l route talaria
    set -l option
    set -l profile
    set -l plain
    set -l position 0
    set -l prefix ''
    for word in $words[2..]
        if test -n "$option"
            contains -- $option -p --profile; and set profile -p $word
            set option
        else if test -z "$plain"; and test "$word" = --
            set plain yes
        else if test -z "$plain"; and string match -q -- '-*' $word
            string match -q -- '--profile=*' $word; and set profile $word
            switch "$route $word"
                @FLAGS@
                    set option $word
            end
        else
            switch "$route $word"
                @STEPS@
                    set route "$route $word"
                    set position 0
                case '*'
                    set position (math $position + 1)
            end
        end
    end
    set -l key "$route $position"
    if test -n "$option"
        set key "$route $option"
    else if test -z "$plain"; and string match -q -- '--*=*' $current
        set key "$route "(string replace -r '=.*' '' -- $current)
        set prefix (string replace -r '=.*' '=' -- $current)
    else if test -z "$plain"; and string match -q -- '-*' $current
        set key "$route -"
    end
    switch $key
        @OFFERS@
    end
end

complete -c talaria -f -a '(__talaria)'
"""
_ZSH_SCRIPT = r"""#compdef talaria
# Completion of talaria for zsh, made by `talaria completion zsh`.

_talaria_words() {
    local -a candidates=("$@")
    _describe -V talaria candidates
}

_talaria_values() {
    local -a candidates
    local value meaning
    case $1 in
        files) _files ;;
        folders) _files -/ ;;
        *)
            while IFS=$'\t' read -r value meaning; do
                candidates+=("${value//:/\\:}:$meaning")
            done < <(${(Q)words[1]} ${profile:+-p} $profile completion --values $1 2>/dev/null)
            _describe -V $1 candidates
            ;;
    esac
}

_talaria() {
    local route=talaria option='' profile='' plain='' word
    local -i position=0
    for word in "${(@Q)words[2,CURRENT-1]}"; do
        if [[ -n $option ]]; then
            [[ $option != -p && $option != --profile ]] || profile=$word
            option=''
        elif [[ -z $plain && $word == -- ]]; then
            plain=yes
        elif [[ -z $plain && $word == -* ]]; then
            [[ $word != --profile=* ]] || profile=${word#*=}
            case "$route $word" in
                @FLAGS@
            esac
        else
            case "$route $word" in
                @STEPS@
                *) position+=1 ;;
            esac
        fi
    done
    local key="$route $position"
    [[ -n $plain || $PREFIX != -* ]] || key="$route -"
    if [[ -z $plain && -z $option && $PREFIX == --*=* ]]; then
        option=${PREFIX%%=*}
        compset -P '*='
    fi
    [[ -z $option ]] || key="$route $option"
    case $key in
        @OFFERS@
    esac
}

if [[ $funcstack[1] == _talaria ]]; then
    _talaria "$@"
else
    compdef _talaria talaria
fi
"""
_MAX_SESSIONS = 100
_EPILOG = """\
Save the script once where your shell looks for completions, for example
`talaria completion fish > ~/.config/fish/completions/talaria.fish`:
  bash   ~/.local/share/bash-completion/completions/talaria
         (without the package bash-completion, add this to ~/.bashrc:
         source <(talaria completion bash))
  zsh    ~/.zsh/completions/_talaria
         (with fpath+=(~/.zsh/completions) before compinit in ~/.zshrc)
  fish   ~/.config/fish/completions/talaria.fish

Save it again after you update Talaria. Profiles, settings and sessions are
looked up each time you press Tab.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take the name of a shell."""
    parser.epilog = _EPILOG
    parser.add_argument("shell", nargs="?", choices=tuple(_SCRIPTS), help="shell to print a script for")
    parser.add_argument("--values", choices=tuple(_VALUE_SOURCES), help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Print the script, or the values that a script requests."""
    if arguments.values:
        services.terminal.table(("VALUE", "MEANING"), list(_VALUE_SOURCES[arguments.values](services)))
        return 0
    if arguments.shell is None:
        raise Refused("For which shell? Use `talaria completion bash`, `zsh` or `fish`.")
    services.terminal.document(_SCRIPTS[arguments.shell](services.command_line()))
    return 0


def bash_script(program: CommandSpec) -> str:
    """Return a script for bash to source."""
    return fill_template(
        _BASH_SCRIPT,
        {
            "@FLAGS@": [f"{'|'.join(map(quote_pattern, list_valued_flags(program)))}) option=$word ;;"],
            "@STEPS@": [f"{'|'.join(map(quote_pattern, list_command_paths(program)))}) path+=' '$word position=0 ;;"],
            "@OFFERS@": (_format_bash_case(offer) for offer in list_offers(program)),
        },
    )


def zsh_script(program: CommandSpec) -> str:
    """Return a script for zsh to source, or to install in ``fpath`` as ``_talaria``."""
    return fill_template(
        _ZSH_SCRIPT,
        {
            "@FLAGS@": [f"{'|'.join(map(quote_pattern, list_valued_flags(program)))}) option=$word ;;"],
            "@STEPS@": [f"{'|'.join(map(quote_pattern, list_command_paths(program)))}) route+=' '$word position=0 ;;"],
            "@OFFERS@": (_format_zsh_case(offer) for offer in list_offers(program)),
        },
    )


def fish_script(program: CommandSpec) -> str:
    """Return a script for fish to source, or to install as ``talaria.fish``."""
    return fill_template(
        _FISH_SCRIPT,
        {
            "@FLAGS@": [f"case {' '.join(map(_quote, list_valued_flags(program)))}"],
            "@STEPS@": [f"case {' '.join(map(_quote, list_command_paths(program)))}"],
            "@OFFERS@": (line for offer in list_offers(program) for line in _format_fish_case(offer)),
        },
    )


@dataclass(frozen=True, slots=True)
class CompletionOffer:
    """Candidates for one key: words with descriptions, or the name of a list to fetch.

    Keys: ``path --option`` for an option's value, ``path -`` for the options, ``path 0`` for the first
    positional argument. A ``*`` matches any path at the start and any position at the end.
    """

    key: str
    candidates: tuple[tuple[str, str], ...] = ()
    values: str = ""


def list_valued_flags(program: CommandSpec) -> list[str]:
    """Return the keys of the options that take a value."""
    return [key for key, _ in _list_valued_options(program)]


def list_command_paths(program: CommandSpec) -> list[str]:
    """Return every path below the program's own; words that extend a path are actions, not arguments."""
    return [" ".join(command.path) for command in program.walk() if command is not program]


def list_offers(program: CommandSpec) -> list[CompletionOffer]:
    """Return the candidates by key; if two keys match, the first wins."""
    found = [_build_offer(key, option) for key, option in _list_valued_options(program)]
    found += [offer for command in program.walk() for offer in _list_command_offers(command)]
    return [offer for offer in found if offer.candidates or offer.values]


def fill_template(script: str, cases: Mapping[str, Iterable[str]]) -> str:
    """Replace each ``@NAME@`` marker of a script by lines, keeping the marker's indentation."""
    lines = []
    for line in script.splitlines():
        mark = line.strip()
        indentation = line[: len(line) - len(line.lstrip())]
        lines += [indentation + case for case in cases[mark]] if mark in cases else [line]
    return "\n".join(lines) + "\n"


def quote_pattern(key: str) -> str:
    """Return a key as a pattern for bash and zsh: quoted, except for ``*``."""
    return "*".join(quote(part) if part else "" for part in key.split("*"))


def _list_valued_options(program: CommandSpec) -> Iterator[tuple[str, Argument]]:
    """Yield options with a value by key; global options appear once, with any path."""
    for command in program.walk():
        path = "*" if command is program else " ".join(command.path)
        for option in command.options:
            if option.name and (command is program or option not in program.options):
                yield from ((f"{path} {flag}", option) for flag in option.flags)


def _list_command_offers(command: CommandSpec) -> Iterator[CompletionOffer]:
    path = " ".join(command.path)
    yield CompletionOffer(
        f"{path} -", tuple((flag, option.help) for option in command.options for flag in option.flags)
    )
    if command.actions:
        yield CompletionOffer(f"{path} 0", tuple((action.path[-1], action.summary) for action in command.actions))
    for position, argument in enumerate(command.positionals):
        yield _build_offer(f"{path} {'*' if argument.repeated else position}", argument)


def _build_offer(key: str, argument: Argument) -> CompletionOffer:
    return CompletionOffer(key, tuple((choice, "") for choice in argument.choices), argument.completes or "")


def _format_bash_case(offer: CompletionOffer) -> str:
    action = (
        f"_talaria_values {offer.values}"
        if offer.values
        else "_talaria_words " + join(word for word, _ in offer.candidates)
    )
    return f"{quote_pattern(offer.key)}) {action} ;;"


def _format_fish_case(offer: CompletionOffer) -> list[str]:
    if offer.values:
        return [f"case {_quote(offer.key)}", f'    __talaria_values {offer.values} "$prefix" "$current" $profile']
    candidates = " ".join(_quote(f"{word}\t{meaning}" if meaning else word) for word, meaning in offer.candidates)
    return [f"case {_quote(offer.key)}", f'    __talaria_words "$prefix" {candidates}']


def _quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _format_zsh_case(offer: CompletionOffer) -> str:
    if offer.values:
        return f"{quote_pattern(offer.key)}) _talaria_values {offer.values} ;;"
    candidates = join(_format_candidate(word, meaning) for word, meaning in offer.candidates)
    return f"{quote_pattern(offer.key)}) _talaria_words {candidates} ;;"


def _format_candidate(word: str, meaning: str) -> str:
    escaped = word.replace(":", r"\:")
    return f"{escaped}:{meaning}" if meaning else escaped


def _list_profiles(services: Services) -> Iterator[tuple[str, str]]:
    for profile in services.profiles.list():
        yield profile.name, str(profile.folder)


def _list_settings(_: Services) -> Iterator[tuple[str, str]]:
    for field in SettingsSchema().fields():
        yield field.key, field.doc


def _list_sessions(services: Services) -> Iterator[tuple[str, str]]:
    with services.open_database() as database:
        for session in database.read(lambda store: store.sessions.find(SessionFilter(limit=_MAX_SESSIONS))):
            yield session.id, session.title


def _list_tools(services: Services) -> Iterator[tuple[str, str]]:
    for toolset in services.tools().toolsets():
        yield toolset.name, f"{len(toolset.tools)} in this toolset"
        yield from ((tool.name, tool.does) for tool in toolset.tools if tool.name != toolset.name)


def _list_skills(services: Services) -> Iterator[tuple[str, str]]:
    yield from {one.name: one.about for one in reversed(services.tools().skills().list())}.items()


_SCRIPTS = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
_VALUE_SOURCES = {
    "profiles": _list_profiles,
    "settings": _list_settings,
    "sessions": _list_sessions,
    "tools": _list_tools,
    "skills": _list_skills,
}
