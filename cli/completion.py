"""`tenure completion`: prints the script for a shell, and with --words the completions that this script requests at each TAB.

The scripts contain no command or option, so that they never become stale. The first line of a reply is its kind: `words`, or `files` or
`folders`, which the shell completes itself. Each further line is a word, for zsh and fish followed by a tab and a description.
"""

from __future__ import annotations

import argparse
import re
import sys

from cli.completion_words import complete

BASH = r"""
_tenure() {
    local line kind=
    COMPREPLY=()
    while IFS= read -r line; do
        if [ -z "$kind" ]; then kind=$line; else COMPREPLY[${#COMPREPLY[@]}]=$line; fi
    done < <("${COMP_WORDS[0]}" completion bash --words ":${COMP_LINE:0:$COMP_POINT}" 2>/dev/null)
    if [[ ${COMPREPLY[0]} == *= ]]; then compopt -o nospace 2>/dev/null; fi  # its value follows
    case $kind in
        files) compopt -o filenames 2>/dev/null
            while IFS= read -r line; do COMPREPLY[${#COMPREPLY[@]}]=$line; done < <(compgen -f -- "${COMP_WORDS[COMP_CWORD]}") ;;
        folders) compopt -o filenames 2>/dev/null
            while IFS= read -r line; do COMPREPLY[${#COMPREPLY[@]}]=$line; done < <(compgen -d -- "${COMP_WORDS[COMP_CWORD]}") ;;
    esac
}
complete -F _tenure tenure
"""

ZSH = r"""#compdef tenure
_tenure() {
    local line
    local -a lines completions
    lines=("${(@f)$("${(Q)words[1]}" completion zsh --words "${(@)${(@Q)words[1,CURRENT-1]}/#/:}" ":${(Q)PREFIX}" 2>/dev/null)}")
    case $lines[1] in
        files) _files ;;
        folders) _files -/ ;;
        words)
            for line in "${(@)lines[2,-1]}"; do
                completions+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
            done
            if [[ $lines[2] = *= ]]; then _describe -t words word completions -S ''; else _describe -t words word completions; fi ;;
    esac
}
if [ "$funcstack[1]" = "_tenure" ]; then _tenure "$@"; else compdef _tenure tenure; fi
"""

FISH = r"""
function __tenure_offer
    set -l words (commandline -opc)
    set -l lines ($words[1] completion fish --words :$words ":"(commandline -ct | string collect --allow-empty) 2>/dev/null)
    switch "$lines[1]"
        case files
            __fish_complete_path (commandline -ct)
        case folders
            __fish_complete_directories (commandline -ct)
        case words
            printf '%s\n' $lines[2..-1]
    end
end
complete -c tenure -f -a '(__tenure_offer)'
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
# At these characters bash splits an unquoted word, and replaces only the part after the last of them.
BASH_BREAKS = "=:@"


def run(options: argparse.Namespace) -> int:
    if options.words is None:
        sys.stdout.write(SCRIPTS[options.shell].lstrip("\n"))
        return 0
    words = [word.removeprefix(":") for word in options.words]
    if options.shell == "bash":
        words = bash_words(words[0])
    completions = complete(words[1:-1], words[-1])
    print(completions.kind)
    for word, about in completions.words:
        if options.shell == "bash":
            print(for_bash(word, words[-1]))
        else:
            print(f"{word}\t{about}" if about else word)
    return 0


def bash_words(line: str) -> list[str]:
    """Split a line into words; the last may be unfinished or empty."""
    words = [""]
    quote = ""
    escaped = False
    for char in line:
        if escaped:
            words[-1] += char
            escaped = False
        elif char == "\\" and quote != "'":
            escaped = True
        elif quote:
            if char == quote:
                quote = ""
            else:
                words[-1] += char
        elif char in "'\"":
            quote = char
        elif char.isspace():
            if words[-1]:
                words.append("")
        else:
            words[-1] += char
    return words


def for_bash(word: str, current: str) -> str:
    cut = max(current.rfind(char) for char in BASH_BREAKS) + 1
    return re.sub(r"([^\w@%+=:,./-])", r"\\\1", word[cut:])


