"""`sasl.jaas.config`: a login module, a flag and options, as in `org...ScramLoginModule required username="a" password="b";`."""

from __future__ import annotations

from typing import NamedTuple

from secured.errors import wrong_settings

FLAGS = ("required", "requisite", "sufficient", "optional")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
FORM = 'write MODULE required username="..." password="...";'


class Token(NamedTuple):
    text: str
    is_mark: bool = False  # = or ;, not in quotation marks


EQUALS, END, NOTHING = Token("=", True), Token(";", True), Token("", True)


class Jaas(NamedTuple):
    module: str  # the class, without its package
    options: dict[str, str]


def parse_jaas(text: str, where: str) -> Jaas:
    """`where`: the setting and its file, for the error, which shows no part of the text."""
    words = tokens(text, where)
    if words[-1:] != [END]:
        raise wrong_settings(f"{where} does not end with ;", FORM)
    if END in words[:-1]:
        raise wrong_settings(f"{where} has more than one login module", "leave the one of this client")
    if len(words) < 3 or words[0].is_mark or words[1].text.lower() not in FLAGS:
        raise wrong_settings(f"{where} does not begin with a login module and `required`", FORM)
    options: dict[str, str] = {}
    rest = words[2:-1]
    for at in range(0, len(rest), 3):
        name, equals, value = (*rest[at : at + 3], NOTHING, NOTHING)[:3]
        if name.is_mark or equals != EQUALS or value.is_mark:
            raise wrong_settings(f'option {at // 3 + 1} of {where} is not NAME="VALUE"', FORM)
        options[name.text] = value.text
    return Jaas(words[0].text.rpartition(".")[2], options)


def tokens(text: str, where: str) -> list[Token]:
    """The words, quoted texts, `=` and `;`. A quoted text is one word, also an empty one."""
    found: list[Token] = []
    at = 0
    while at < len(text):
        char = text[at]
        if char.isspace():
            at += 1
        elif char in "=;":
            found.append(Token(char, True))
            at += 1
        elif char in "\"'":
            word, at = quoted(text, at, where)
            found.append(Token(word))
        else:
            end = at
            while end < len(text) and not text[end].isspace() and text[end] not in "=;\"'":
                end += 1
            found.append(Token(text[at:end]))
            at = end
    return found


def quoted(text: str, at: int, where: str) -> tuple[str, int]:
    """The quoted text that begins at this position, and the position after it."""
    mark = text[at]
    word = ""
    at += 1
    while at < len(text):
        char = text[at]
        if char == mark:
            return word, at + 1
        if char == "\\" and at + 1 < len(text):
            at += 1
            char = ESCAPES.get(text[at], text[at])
        word += char
        at += 1
    raise wrong_settings(f"a quotation mark is not closed in {where}", 'a quotation mark within a value is written \\\\" in a file')
