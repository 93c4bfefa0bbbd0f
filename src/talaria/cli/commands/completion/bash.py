"""Completion script for bash 4 and later."""

from shlex import join

from talaria.cli.commands.completion.candidates import (
    CompletionOffer,
    fill_template,
    list_command_paths,
    list_offers,
    list_valued_flags,
    quote_pattern,
)
from talaria.cli.parser_tree import CommandSpec

_SCRIPT = r"""# Completion of talaria for bash, made by `talaria completion bash`.

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


def bash_script(program: CommandSpec) -> str:
    """Return a script for bash to source."""
    return fill_template(
        _SCRIPT,
        {
            "@FLAGS@": [f"{'|'.join(map(quote_pattern, list_valued_flags(program)))}) option=$word ;;"],
            "@STEPS@": [f"{'|'.join(map(quote_pattern, list_command_paths(program)))}) path+=' '$word position=0 ;;"],
            "@OFFERS@": (_format_case(offer) for offer in list_offers(program)),
        },
    )


def _format_case(offer: CompletionOffer) -> str:
    action = (
        f"_talaria_values {offer.values}"
        if offer.values
        else "_talaria_words " + join(word for word, _ in offer.candidates)
    )
    return f"{quote_pattern(offer.key)}) {action} ;;"
