"""Regular expressions to which members subscribe: RE2's syntax, matched against whole names of topics, in time linear in the name.

With google-re2 installed (the extra `regex`) that library matches. Without it an automaton of our own does, for the usual part of the syntax;
the rest is refused, and the message names the extra. Python's `re` is no replacement: it backtracks, so one expression could stop the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from coordinator.consumer.regex_syntax import (
    ASSERTION,
    AT_BEGIN,
    AT_END,
    AT_WORD_BOUNDARY,
    CHOICE,
    CLASS,
    ENDLESS,
    EXTRA,
    REPETITION,
    WORD,
    Node,
    parse,
)
from coordinator.consumer.regex_syntax import InvalidExpression as InvalidExpression

try:
    import re2 as re2
except ImportError:
    re2 = None

INSTRUCTIONS_MAX: Final = 5_000
STATES_KEPT_MAX: Final = 1_000
_MATCH: Final = -1
_SPLIT: Final = -2

# What is before the place of a name: nothing, a character of words, or another.
_NOTHING, _WORD, _OTHER = range(3)

Matches = Callable[[str], bool]


def compile(expression: str) -> Matches:
    """A function that says whether a name matches. Raises InvalidExpression."""
    return compile_with_re2(expression) if re2 is not None else Automaton(expression).matches


def compile_with_re2(expression: str) -> Matches:
    refuse_unknown_to_kafka(expression)
    options = re2.Options()
    options.log_errors = False  # its messages would go to stderr
    try:
        compiled = re2.compile(expression, options)
    except re2.error as problem:
        reason = problem.args[0]
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise InvalidExpression(f"{text}, in the regular expression {expression}") from problem
    return lambda name: compiled.fullmatch(name) is not None


def refuse_unknown_to_kafka(expression: str) -> None:
    """Kafka's RE2/J has no `\\C`, a single byte."""
    at = 0
    while (at := expression.find("\\", at)) >= 0:
        escaped = expression[at + 1 : at + 2]
        if escaped == "C":
            raise InvalidExpression(f"invalid escape sequence: \\C, in the regular expression {expression}")
        end = expression.find("\\E", at + 2) if escaped == "Q" else at
        at = end + 2 if end >= 0 else len(expression)


class State:
    """A set of instructions that were reached, and what is before this place. `next`: the state after each character."""

    __slots__ = ("before", "instructions", "is_end", "next")

    def __init__(self, instructions: frozenset[int], before: int, is_end: bool) -> None:
        self.instructions = instructions
        self.before = before
        self.is_end = is_end  # a name that ends here matches
        self.next: dict[str, State] = {}


class Automaton:
    """A program of instructions, run on all paths at once. States are made when a name needs them, and kept.

    An instruction is a pair: a class of characters and the next instruction; `_SPLIT` and its number in `_choices`; or an assertion, as a
    negative number below `_SPLIT`.
    """

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._program: list[tuple[int, int]] = []
        self._choices: list[tuple[int, int]] = []
        self._steps = 0
        self._states: dict[tuple[frozenset[int], int], State] = {}
        end = self._add(_MATCH, 0)
        self._start = self._state(frozenset([self._emit(parse(expression), end)]), _NOTHING)

    def matches(self, name: str) -> bool:
        if not name.isascii():
            return False  # no topic has such a name
        state = self._start
        for character in name:
            following = state.next.get(character)
            state = following if following is not None else self._step(state, character)
            if not state.instructions:
                return False
        return state.is_end

    def _step(self, state: State, character: str) -> State:
        bit = 1 << ord(character)
        kind = _WORD if WORD & bit else _OTHER
        reached = frozenset(
            [self._program[at][1] for at in self._reach(state.instructions, state.before, kind) if self._program[at][0] > 0 and self._program[at][0] & bit]
        )
        following = state.next[character] = self._state(reached, kind)
        return following

    def _state(self, instructions: frozenset[int], before: int) -> State:
        state = self._states.get((instructions, before))
        if state is None:
            if len(self._states) >= STATES_KEPT_MAX:
                self._forget()
            is_end = any(self._program[at][0] == _MATCH for at in self._reach(instructions, before, _NOTHING))
            state = self._states[instructions, before] = State(instructions, before, is_end)
        return state

    def _forget(self) -> None:
        for state in self._states.values():
            state.next = {}
        self._states = {}

    def _reach(self, instructions: frozenset[int], before: int, after: int) -> set[int]:
        """All instructions that are reached without a character, between what is before and after."""
        reached = set(instructions)
        waiting = list(instructions)
        while waiting:
            code, target = self._program[waiting.pop()]
            targets: tuple[int, ...] = ()
            if code == _SPLIT:
                targets = self._choices[target]
            elif code < _SPLIT and _holds(_SPLIT - 1 - code, before, after):
                targets = (target,)
            for one in targets:
                if one not in reached:
                    reached.add(one)
                    waiting.append(one)
        return reached

    # The program is made from its end: each part gets the instruction that follows it.

    def _emit(self, node: Node, following: int) -> int:
        """The first instruction of a part."""
        self._steps += 1
        if self._steps > INSTRUCTIONS_MAX:
            raise InvalidExpression(f"this broker accepts so large a regular expression only with {EXTRA} installed: {self._expression}")
        if node.kind == CLASS:
            return self._add(node.value, following)
        if node.kind == ASSERTION:
            return self._add(_SPLIT - 1 - node.value, following)
        if node.kind == CHOICE:
            first = self._emit(node.parts[-1], following)
            for part in reversed(node.parts[:-1]):
                first = self._split(self._emit(part, following), first)
            return first
        if node.kind == REPETITION:
            return self._emit_repetition(node, following)
        for part in reversed(node.parts):
            following = self._emit(part, following)
        return following

    def _emit_repetition(self, node: Node, following: int) -> int:
        (part,) = node.parts
        first = following
        if node.high == ENDLESS:
            again = self._split(following, following)
            self._choices[self._program[again][1]] = (self._emit(part, again), following)
            first = again
        else:
            for _ in range(node.high - node.low):
                first = self._split(self._emit(part, first), following)
        for _ in range(node.low):
            first = self._emit(part, first)
        return first

    def _split(self, one: int, other: int) -> int:
        self._choices.append((one, other))
        return self._add(_SPLIT, len(self._choices) - 1)

    def _add(self, code: int, target: int) -> int:
        self._program.append((code, target))
        return len(self._program) - 1


def _holds(assertion: int, before: int, after: int) -> bool:
    if assertion == AT_BEGIN:
        return before == _NOTHING
    if assertion == AT_END:
        return after == _NOTHING
    return ((before == _WORD) != (after == _WORD)) == (assertion == AT_WORD_BOUNDARY)
