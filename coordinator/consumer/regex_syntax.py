"""Reads the part of RE2's syntax that the automaton of `regex.py` knows. What remains is a class of characters, an assertion, or made of such.

Names of topics are ASCII, so a class is a number of 128 bits, one for each character. A name has one line, so the flags m and s change nothing,
and whether a repetition is lazy does not matter where a whole name is matched.
"""

from __future__ import annotations

from typing import Final, NamedTuple

EXTRA: Final = "tenure[regex]"
NESTING_MAX: Final = 50
REPETITION_MAX: Final = 1_000  # RE2's
ENDLESS: Final = -1

CLASS, ASSERTION, SEQUENCE, CHOICE, REPETITION = range(5)
AT_BEGIN, AT_END, AT_WORD_BOUNDARY, NOT_AT_WORD_BOUNDARY = range(4)

ALL: Final = (1 << 128) - 1


class InvalidExpression(ValueError):
    """An expression that is refused; the text is for the client."""


class Node(NamedTuple):
    """Of an expression. `value`: the class, or the kind of the assertion. `low` and `high`: of a repetition."""

    kind: int
    value: int = 0
    parts: tuple[Node, ...] = ()
    low: int = 0
    high: int = 0


def of_range(first: int, last: int) -> int:
    """The class of these characters, as far as they are ASCII."""
    return (1 << min(last, 127) + 1) - (1 << min(first, 128)) if first <= last else 0


def of_text(text: str) -> int:
    mask = 0
    for character in text:
        mask |= 1 << ord(character)
    return mask


DIGITS: Final = of_range(48, 57)
UPPER: Final = of_range(65, 90)
LOWER: Final = of_range(97, 122)
WORD: Final = DIGITS | UPPER | LOWER | of_text("_")
_PERL: Final = {"d": DIGITS, "w": WORD, "s": of_text("\t\n\f\r ")}
_POSIX: Final = {
    "alnum": DIGITS | UPPER | LOWER,
    "alpha": UPPER | LOWER,
    "ascii": ALL,
    "blank": of_text("\t "),
    "cntrl": of_range(0, 31) | 1 << 127,
    "digit": DIGITS,
    "graph": of_range(33, 126),
    "lower": LOWER,
    "print": of_range(32, 126),
    "punct": of_range(33, 126) & ~(DIGITS | UPPER | LOWER),
    "space": of_text("\t\n\v\f\r "),
    "upper": UPPER,
    "word": WORD,
    "xdigit": DIGITS | of_range(65, 70) | of_range(97, 102),
}
_CONTROL: Final = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_ASSERTIONS: Final = {"A": AT_BEGIN, "z": AT_END, "b": AT_WORD_BOUNDARY, "B": NOT_AT_WORD_BOUNDARY}
EMPTY: Final = Node(SEQUENCE)


def parse(text: str) -> Node:
    """Raises InvalidExpression for wrong syntax, and for syntax that only the extra knows."""
    return _Parser(text).parse()


def folded(mask: int) -> int:
    """A class with the other case of its letters."""
    return mask | (mask & UPPER) << 32 | (mask & LOWER) >> 32


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._folds = False
        self._names: set[str] = set()

    def parse(self) -> Node:
        node = self._choice(0)
        if self._at < len(self._text):
            raise self._wrong("unexpected )")
        return node

    def _choice(self, depth: int) -> Node:
        if depth > NESTING_MAX:
            raise self._beyond(f"groups nested deeper than {NESTING_MAX}")
        choices = [self._sequence(depth)]
        while self._takes("|"):
            choices.append(self._sequence(depth))
        return choices[0] if len(choices) == 1 else Node(CHOICE, parts=tuple(choices))

    def _sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        repeatable = repeated = False
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            begin = self._at
            bounds = self._repetition()
            if bounds is None:
                before = len(parts)
                self._atom(parts, depth)
                if self._text[begin] == "{" and self._at < len(self._text) and self._repetition() is not None:
                    raise self._beyond("a repeated {")  # RE2/J refuses it, RE2 does not
                repeatable = len(parts) > before
                repeated = False
                continue
            if repeated:
                raise self._wrong(f"repeated repetition {self._text[begin : self._at]}")
            if not repeatable:
                if parts:  # after flags or an empty quotation: RE2 repeats what is before them
                    raise self._beyond(f"this use of {self._text[begin : self._at]}")
                raise self._wrong(f"nothing to repeat before {self._text[begin : self._at]}")
            parts.append(Node(REPETITION, parts=(parts.pop(),), low=bounds[0], high=bounds[1]))
            repeated = True
        return parts[0] if len(parts) == 1 else Node(SEQUENCE, parts=tuple(parts))

    def _repetition(self) -> tuple[int, int] | None:
        """The bounds of a repetition that begins here, if one does: a brace that is none is a character."""
        character = self._text[self._at]
        if character in "*+?":
            self._at += 1
            bounds = {"*": (0, ENDLESS), "+": (1, ENDLESS), "?": (0, 1)}[character]
        else:
            end = self._text.find("}", self._at) if character == "{" else -1
            low, comma, high = self._text[self._at + 1 : max(end, 0)].partition(",")
            if end < 0 or not _is_count(low) or not (_is_count(high) or not high):
                return None
            self._at = end + 1
            first = _count(low)
            last = _count(high) if high else ENDLESS if comma else first
            if max(first, last) > REPETITION_MAX or (last != ENDLESS and first > last):
                raise self._wrong(f"bad repetition {{{low}{comma}{high}}}: at most {REPETITION_MAX}, the smaller number first")
            bounds = first, last
        self._takes("?")
        return bounds

    def _atom(self, parts: list[Node], depth: int) -> None:
        character = self._text[self._at]
        if character == "(":
            self._group(parts, depth)
        elif character == "[":
            self._at += 1
            parts.append(Node(CLASS, self._class()))
        elif character == "\\":
            self._escape(parts)
        else:
            self._at += 1
            if character == ".":
                parts.append(Node(CLASS, ALL & ~of_text("\n")))
            elif character in "^$":
                parts.append(Node(ASSERTION, AT_BEGIN if character == "^" else AT_END))
            else:
                parts.append(self._literal(ord(character)))

    def _group(self, parts: list[Node], depth: int) -> None:
        self._at += 1
        folds = self._folds
        if self._takes("?") and not self._is_group(parts):
            return
        parts.append(self._choice(depth + 1))
        if not self._takes(")"):
            raise self._wrong("missing )")
        self._folds = folds  # flags hold to the end of their group

    def _is_group(self, parts: list[Node]) -> bool:
        """After `(?`: read the name or the flags. False: these were flags for the rest of the group around."""
        for opening in ("P<", "<"):
            if self._text.startswith(opening, self._at):
                end = self._text.find(">", self._at)
                name = self._text[self._at + len(opening) : max(end, 0)]
                if end < 0 or not name.isascii() or not name.replace("_", "a").isalnum() or name in self._names:
                    raise self._wrong(f"bad or repeated name of a group: {name}")
                self._names.add(name)
                self._at = end + 1
                return True
        begin = self._at
        on = True
        while self._at < len(self._text) and self._text[self._at] in "imsU-":
            flag = self._text[self._at]
            if flag == "-" and not on:
                break
            on = on and flag != "-"
            if flag == "i":
                self._folds = on
            self._at += 1
        flags = self._text[begin : self._at]
        if self._takes(":") and not flags.endswith("-"):
            return True
        if flags and self._takes(")") and not flags.endswith("-"):
            return False
        if not flags and self._takes(")"):
            raise self._beyond("(?)")  # RE2/J accepts it
        raise self._wrong(f"(?{self._text[begin : self._at + 1]} begins nothing that RE2 knows")

    def _escape(self, parts: list[Node]) -> None:
        self._at += 1
        character = self._next("an expression may not end with \\")
        if character in _ASSERTIONS:
            parts.append(Node(ASSERTION, _ASSERTIONS[character]))
        elif character == "Q":
            end = self._text.find("\\E", self._at)
            if end < 0:
                end = len(self._text)
            parts += [self._literal(ord(one)) for one in self._text[self._at : end]]
            self._at = min(end + 2, len(self._text))
        elif character.lower() in _PERL:
            parts.append(Node(CLASS, _perl(character)))
        else:
            parts.append(self._literal(self._code(character)))

    def _code(self, character: str) -> int:
        """The character that an escape stands for, whose letter was read."""
        if character in _CONTROL:
            return _CONTROL[character]
        if character == "x":
            braces = self._takes("{")
            end = self._text.find("}", self._at) if braces else self._at + 2
            digits = self._text[self._at : max(end, 0)]
            self._at = end + braces
            if len(digits) < 2 - braces or set(digits) - set("0123456789abcdefABCDEF") or int(digits, 16) > 0x10FFFF:
                raise self._wrong(f"bad escape \\x{digits}")
            return int(digits, 16)
        if character.isascii() and not character.isalnum():
            return ord(character)
        octal = character == "0" or (character in "1234567" and self._text[self._at : self._at + 1] in tuple("01234567"))
        if octal or character in "pP" or not character.isascii():
            raise self._beyond(f"\\{character}")
        raise self._wrong(f"bad escape \\{character}")

    def _class(self) -> int:
        negated = self._takes("^")
        mask = 0
        first = True
        while first or not self._text.startswith("]", self._at):
            if self._at >= len(self._text):
                raise self._wrong("missing ]")
            mask |= self._item()
            first = False
        self._at += 1
        return ALL & ~mask if negated else mask

    def _item(self) -> int:
        """A class in a class, a character or a range."""
        if self._text.startswith("[:", self._at):
            end = self._text.find(":]", self._at + 2)
            if end >= 0:
                name = self._text[self._at + 2 : end]
                listed = _POSIX.get(name.removeprefix("^"))
                if listed is None:
                    raise self._wrong(f"no class is called [:{name}:]")
                self._at = end + 2
                listed = folded(listed) if self._folds else listed
                return ALL & ~listed if name.startswith("^") else listed
        escaped = self._text[self._at + 1 : self._at + 2] if self._text[self._at] == "\\" else ""
        if escaped and escaped.lower() in _PERL:
            self._at += 2
            return _perl(escaped)
        low, high = self._range()
        if self._folds and high > 127:
            raise self._beyond("characters outside of ASCII without regard to case")
        mask = of_range(low, high)
        return folded(mask) if self._folds else mask

    def _range(self) -> tuple[int, int]:
        begin = self._at
        low = high = self._class_character()
        if self._text.startswith("-", self._at) and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
            self._at += 1
            high = self._class_character()
            if high < low:
                raise self._wrong(f"bad range {self._text[begin : self._at]}")
        return low, high

    def _class_character(self) -> int:
        character = self._next("missing ]")
        return self._code(self._next("missing ]")) if character == "\\" else ord(character)

    def _literal(self, code: int) -> Node:
        if self._folds and code > 127:
            raise self._beyond("characters outside of ASCII without regard to case")
        mask = of_range(code, code)
        return Node(CLASS, folded(mask) if self._folds else mask)

    def _next(self, missing: str) -> str:
        if self._at >= len(self._text):
            raise self._wrong(missing)
        self._at += 1
        return self._text[self._at - 1]

    def _takes(self, character: str) -> bool:
        taken = self._text.startswith(character, self._at)
        if taken:
            self._at += 1
        return taken

    def _wrong(self, reason: str) -> InvalidExpression:
        return InvalidExpression(f"{reason}, in the regular expression {self._text}")

    def _beyond(self, what: str) -> InvalidExpression:
        return InvalidExpression(f"this broker reads {what} in a regular expression only with {EXTRA} installed: {self._text}")


def _perl(letter: str) -> int:
    listed = _PERL[letter.lower()]
    return listed if letter.islower() else ALL & ~listed


def _is_count(text: str) -> bool:
    """A count has no leading zero."""
    return text.isascii() and text.isdigit() and (text == "0" or text[0] != "0")


def _count(text: str) -> int:
    return int(text) if len(text) <= len(str(REPETITION_MAX)) else REPETITION_MAX + 1
