"""Regular expressions of subscriptions: RE2's syntax, by google-re2 and by the automaton, which agree with each other and with RE2/J."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest

from coordinator.consumer import regex
from coordinator.consumer.regex import Automaton, compile_with_re2
from coordinator.consumer.regex_syntax import InvalidExpression
from tests.oracle import NEWEST_VERSION, run_java

PROGRAM = Path(__file__).parent / "Re2jSyntax.java"
NAMES = ["", "a", "b", "A", "ab", "ba", "aa", "aab", "a.b", "a-b", "a_b", "a1", "11", "_", "-", "abcabc", "Orders-1", "orders", "x.y-z_0"]

MATCHED = {
    "orders": ["orders"],
    "a|b": ["a", "b"],
    "": [""],
    "()": [""],
    "a|": ["", "a"],
    "(?:a|b)+": ["a", "b", "ab", "ba", "aa", "aab"],
    "a.b": ["aab", "a.b", "a-b", "a_b"],
    r"a\.b": ["a.b"],
    r"\Qa.b\E": ["a.b"],
    r"\Qa.b": ["a.b"],
    "[^ab]": ["A", "_", "-"],
    "[a-b_-]": ["a", "b", "_", "-"],
    "[]-]": ["-"],
    "[[:alpha:]]": ["a", "b", "A"],
    "[[:^alpha:]]": ["_", "-"],
    r"\d+": ["11"],
    r"\w\W\w": ["a.b", "a-b"],
    r"[\d.]\D?": [],
    r"a\s?": ["a"],
    "(?i)a": ["a", "A"],
    "(?i:A)b": ["ab"],
    "((?i)a)A|x": [],
    "(?i)[^a]": ["b", "_", "-"],
    "(?i)orders(?-i)-1": ["Orders-1"],
    "a{2}": ["aa"],
    "a{1,2}b?": ["a", "ab", "aa", "aab"],
    "(?:abc){2,}": ["abcabc"],
    "a{0}": [""],
    "a{,2}": [],
    "a{01}": [],
    "a*?": ["", "a", "aa"],
    "a??b": ["b", "ab"],
    "(a*)*": ["", "a", "aa"],
    "^a$": ["a"],
    "(^|x)a": ["a"],
    "a^b|b$": ["b"],
    r"\Aa\z": ["a"],
    r"a\b.*": ["a", "a.b", "a-b"],
    r"a\B.*": ["ab", "aa", "aab", "a_b", "a1", "abcabc"],
    "(?P<first>a)(?<second>b)": ["ab"],
    r"\x61\x{62}": ["ab"],
    "é|a": ["a"],
}
REFUSED = (
    "(", ")", "a)", "((a)", "[", "[]", "[^]", "[a-", "[z-a]", "[a\\]", "a(?=x)", "a(?!x)", "(?<=a)b", "(?>a)", "(?#c)", "(?P=n)", "(?", "(?:", "(?P", "(?P<",
    "(?P<n>a)(?P<n>b)", "(?P<a b>c)", r"(a)\1", r"\8", r"\Z", r"\e", r"\y", r"\h", r"\cA", r"\E", r"\C", "a\\", "*a", "+", "?", "{2}", "a|*", "(*)", "a**", "a++",
    "a*{2}", "a?{2}", "a{2}{3}", "a{2}?*", "a{1001}", "a{0,1001}", "x{2,1}", "a{99999999999}", "[[:foo:]]", r"[a-\d]", r"[\b]", r"[\Q]\E]", r"\x", r"\x4", r"\x{}",
    r"\x{110000}", "(?z)a", "(?i-)a", "(?-)a", "(?--i)a",
)  # fmt: skip
ONLY_WITH_RE2 = (r"\pL", "a{*", r"\p{Greek}", r"\101", r"\0", "(?i)é", "(?i)[a-é]", "a(?i)*", "(?:a{1000}){6}"[:-3] + "b{1000}c{1000}d{1000}e{1000}f{1000}")


def re2_or_skip() -> None:
    if regex.re2 is None:
        pytest.skip("google-re2 is not installed: it has no wheel for this Python")


def test_the_automaton_matches_whole_names() -> None:
    assert {expression: list(filter(Automaton(expression).matches, NAMES)) for expression in MATCHED} == MATCHED


def test_re2_matches_whole_names() -> None:
    re2_or_skip()
    assert {expression: list(filter(compile_with_re2(expression), NAMES)) for expression in MATCHED} == MATCHED


@pytest.mark.parametrize("expression", REFUSED)
def test_wrong_syntax_is_refused(expression: str) -> None:
    with pytest.raises(InvalidExpression) as refused:
        Automaton(expression)
    assert "tenure[regex]" not in str(refused.value), "the extra would refuse it too"
    if regex.re2 is not None and expression not in ("(?P<n>a)(?P<n>b)", "a{99999999999}"):  # RE2 accepts them, and RE2/J does not
        with pytest.raises(InvalidExpression):
            compile_with_re2(expression)


@pytest.mark.parametrize("expression", ONLY_WITH_RE2)
def test_what_only_re2_knows_is_refused_with_the_name_of_the_extra(expression: str) -> None:
    with pytest.raises(InvalidExpression, match=r"only with tenure\[regex\] installed"):
        Automaton(expression)


@pytest.mark.plain
def test_the_library_is_used_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    re2_or_skip()
    assert not regex.compile(r"\p{Greek}+")("a")
    monkeypatch.setattr(regex, "re2", None)
    assert regex.compile("(a|b)+")("abba")
    with pytest.raises(InvalidExpression):
        regex.compile(r"\p{Greek}+")


def test_the_library_writes_no_line_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    re2_or_skip()
    with pytest.raises(InvalidExpression):
        compile_with_re2("(")
    assert capfd.readouterr().err == ""


def test_a_name_is_matched_in_linear_time() -> None:
    start = time.process_time()
    for expression in ("(a+)+b", "(a|a)*b", "(a?){100}a{100}b", "(.*)*x"):
        assert not Automaton(expression).matches("a" * 249)
    assert time.process_time() - start < 10


def test_nested_repetitions_of_nothing_end() -> None:
    with pytest.raises(InvalidExpression, match="so large"):
        Automaton("((((){1000}){1000}){1000}){1000}")
    with pytest.raises(InvalidExpression, match="nested deeper"):
        Automaton("(" * 5_000 + "a" + ")" * 5_000)


def test_few_states_are_kept() -> None:
    automaton = Automaton("(a|b)*a(a|b){11}")
    random = Random(1)
    for _ in range(300):
        name = "".join(random.choices("ab", k=40))
        assert automaton.matches(name) == (name[-12] == "a")
    assert len(automaton._states) <= regex.STATES_KEPT_MAX


PIECES = ("a", "b", "1", ".", "-", "_", r"\d", r"\w", r"\W", r"\s", r"\S", r"\.", r"\-", "[ab]", "[^a]", "[a-c1]", "[^-a]", r"[\d_]", r"[^\w]", "[[:upper:]]", "^", "$", r"\b", r"\B", r"\Qa.\E", "é")


def random_expression(random: Random, depth: int = 0) -> str:
    parts = []
    for _ in range(random.choice((0, 1, 1, 2, 3))):
        part = random.choice(PIECES)
        if depth < 3 and random.random() < 0.35:
            part = random.choice(("(", "(?:", "(?i:", f"(?P<g{random.randrange(1 << 40)}>")) + random_expression(random, depth + 1) + ")"
        if random.random() < 0.3:
            part += random.choice(("*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?", "??", "{1,3}?", "{0}"))
        parts.append(part)
    text = "".join(parts)
    return f"{text}|{random_expression(random, depth)}" if random.random() < 0.2 else text


def spoiled(random: Random, text: str) -> str:
    """Often wrong syntax."""
    at = random.randrange(len(text) + 1)
    return text[:at] + random.choice(("(", ")", "[", "]", "*", "{", "}", "\\", "?", "-", "|", "a", "^", "{2}", ":", "<")) + text[at + random.randrange(2) :]


def random_names(random: Random) -> list[str]:
    return [*NAMES, *("".join(random.choices("abAB1.-_", k=random.randrange(1, 7))) for _ in range(20))]


def verdict(expression: str, names: list[str]) -> str:
    try:
        automaton = Automaton(expression)
    except InvalidExpression as refused:
        return "?" if "tenure[regex]" in str(refused) else "-"
    return "".join("01"[automaton.matches(name)] for name in names)


@pytest.mark.parametrize("seed", range(4))
def test_the_automaton_agrees_with_re2(seed: int) -> None:
    re2_or_skip()
    random = Random(seed)
    for _ in range(500):
        expression = random_expression(random)
        if random.random() < 0.4:
            expression = spoiled(random, expression)
        names = random_names(random)
        ours = verdict(expression, names)
        if ours == "?":
            continue
        try:
            matches = compile_with_re2(expression)
        except InvalidExpression:
            assert ours == "-", expression
        else:
            assert ours == "".join("01"[matches(name)] for name in names), expression


@pytest.mark.kafka
def test_the_automaton_agrees_with_the_library_of_kafka(tmp_path: Path) -> None:
    random = Random()
    expressions = [random_expression(random) for _ in range(4_000)]
    expressions = [*MATCHED, *REFUSED, *(spoiled(random, one) if random.random() < 0.5 else one for one in expressions)]
    cases = [(expression, random_names(random)) for expression in expressions]
    file = tmp_path / "cases"
    file.write_text("".join("\t".join((expression, *names)) + "\n" for expression, names in cases))
    for (expression, names), kafkas in zip(cases, run_java(PROGRAM, file, version=NEWEST_VERSION).splitlines(), strict=True):
        ours = verdict(expression, names)
        assert ours in ("?", kafkas), (expression, dict(zip(names, zip(ours, kafkas, strict=False), strict=False)))
