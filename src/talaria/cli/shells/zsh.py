"""Completion for zsh."""

from shlex import join

from talaria.cli.command_tree import Command
from talaria.cli.shells.offers import Offer, fill, flags_with_value, offers, pattern, steps

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


def zsh_script(program: Command) -> str:
    """Return a script to be sourced by zsh, or to be put into its ``fpath`` as ``_talaria``."""
    return fill(
        _SCRIPT,
        {
            "@FLAGS@": [f"{'|'.join(map(pattern, flags_with_value(program)))}) option=$word ;;"],
            "@STEPS@": [f"{'|'.join(map(pattern, steps(program)))}) route+=' '$word position=0 ;;"],
            "@OFFERS@": (_case(offer) for offer in offers(program)),
        },
    )


def _case(offer: Offer) -> str:
    if offer.values:
        return f"{pattern(offer.key)}) _talaria_values {offer.values} ;;"
    return f"{pattern(offer.key)}) _talaria_words {join(_described(word, meaning) for word, meaning in offer.words)} ;;"


def _described(word: str, meaning: str) -> str:
    escaped = word.replace(":", r"\:")
    return f"{escaped}:{meaning}" if meaning else escaped
