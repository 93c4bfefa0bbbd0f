"""Completion script for zsh."""

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

_SCRIPT = r"""#compdef talaria
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


def zsh_script(program: CommandSpec) -> str:
    """Return a script for zsh to source, or to install in ``fpath`` as ``_talaria``."""
    return fill_template(
        _SCRIPT,
        {
            "@FLAGS@": [f"{'|'.join(map(quote_pattern, list_valued_flags(program)))}) option=$word ;;"],
            "@STEPS@": [f"{'|'.join(map(quote_pattern, list_command_paths(program)))}) route+=' '$word position=0 ;;"],
            "@OFFERS@": (_format_case(offer) for offer in list_offers(program)),
        },
    )


def _format_case(offer: CompletionOffer) -> str:
    if offer.values:
        return f"{quote_pattern(offer.key)}) _talaria_values {offer.values} ;;"
    candidates = join(_format_candidate(word, meaning) for word, meaning in offer.candidates)
    return f"{quote_pattern(offer.key)}) _talaria_words {candidates} ;;"


def _format_candidate(word: str, meaning: str) -> str:
    escaped = word.replace(":", r"\:")
    return f"{escaped}:{meaning}" if meaning else escaped
