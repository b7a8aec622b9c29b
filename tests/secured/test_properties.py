"""Java's properties format, with the cases of its documentation (java.util.Properties.load)."""

from __future__ import annotations

import pytest

from secured.properties import PropertiesError, parse_properties


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", []),
        ("# a=b\n! a=b\n \t\n   # c", []),
        ("Truth = Beauty", [("Truth", "Beauty")]),
        (" Truth:Beauty", [("Truth", "Beauty")]),
        ("Truth                    :Beauty", [("Truth", "Beauty")]),
        ("fruits  apple, banana, pear, \\\n        cantaloupe, \\\n        kiwi", [("fruits", "apple, banana, pear, cantaloupe, kiwi")]),
        ("cheeses", [("cheeses", "")]),
        ("a=b=c:d # no comment", [("a", "b=c:d # no comment")]),
        ("a==b", [("a", "=b")]),
        ("a\\:\\=\\ b=c", [("a:= b", "c")]),
        ("a=b\\\\\nc=d\\\\\\\n#e", [("a", "b\\"), ("c", "d\\#e")]),
        ("a=\\t\\n\\r\\f\\z\\\"\\u00e9\\u20AC", [("a", "\t\n\r\fz\"\u00e9\u20ac")]),
        ("a=1\r\nb=2\rc=3\\\r\n  4\n", [("a", "1"), ("b", "2"), ("c", "34")]),
        ("a=b\\", [("a", "b")]),
        ("# comments are not continued \\\na=b", [("a", "b")]),
        ("a=b\\\n\nc=d", [("a", "b"), ("c", "d")]),
        ("a=b \ntwo=\u00e9\u2028\x0b", [("a", "b "), ("two", "\u00e9\u2028\x0b")]),
        ("a=1\na=2", [("a", "1"), ("a", "2")]),
        ("=x", [("", "x")]),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, pairs: list[tuple[str, str]]) -> None:
    assert parse_properties(text) == pairs


@pytest.mark.parametrize("escape", ["\\u", "\\u12", "\\u12g4", "\\u-123", "\\u 123", "\\u1_23", "\\u\u0661\u0662\u0663\u0664"])
def test_a_wrong_escape_is_refused_with_its_line(escape: str) -> None:
    with pytest.raises(PropertiesError, match=r"\\u needs four hexadecimal digits \(at line 3\)$"):
        parse_properties(f"a=b\n\nc={escape}\n")
