"""Completion script for fish."""

from talaria.cli.commands.completion.candidates import (
    CompletionOffer,
    fill_template,
    list_command_paths,
    list_offers,
    list_valued_flags,
)
from talaria.cli.parser_tree import CommandSpec

_SCRIPT = r"""# Completion of talaria for fish, made by `talaria completion fish`.

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


def fish_script(program: CommandSpec) -> str:
    """Return a script for fish to source, or to install as ``talaria.fish``."""
    return fill_template(
        _SCRIPT,
        {
            "@FLAGS@": [f"case {' '.join(map(_quote, list_valued_flags(program)))}"],
            "@STEPS@": [f"case {' '.join(map(_quote, list_command_paths(program)))}"],
            "@OFFERS@": (line for offer in list_offers(program) for line in _format_case(offer)),
        },
    )


def _format_case(offer: CompletionOffer) -> list[str]:
    if offer.values:
        return [f"case {_quote(offer.key)}", f'    __talaria_values {offer.values} "$prefix" "$current" $profile']
    candidates = " ".join(_quote(f"{word}\t{meaning}" if meaning else word) for word, meaning in offer.candidates)
    return [f"case {_quote(offer.key)}", f'    __talaria_words "$prefix" {candidates}']


def _quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
