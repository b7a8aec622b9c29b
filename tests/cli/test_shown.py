"""Tables, JSON, colours and confirmations: the formats of the command's output."""

from __future__ import annotations

import argparse
import io
import json
import sys

import pytest

from cli.shown import Column, Painted, Role, Screen, end_json, plain, shortened, shows_colour, width


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def new_screen(**options: bool) -> Screen:
    return Screen(out=io.StringIO(), err=io.StringIO(), **options)


def written(screen: Screen) -> str:
    assert isinstance(screen.out, io.StringIO)
    return screen.out.getvalue()


def table(*rows: tuple[object, ...], colour: bool = False, columns: tuple[Column | str, ...] = ("NAME", "COUNT")) -> list[str]:
    screen = new_screen(colour=colour)
    screen.table(columns, rows)
    return written(screen).splitlines()


def test_columns_are_aligned_with_numbers_to_the_right() -> None:
    assert table(("a", 5), ("longer", 12345)) == ["NAME    COUNT", "a           5", "longer  12345"]


def test_an_unknown_value_is_a_dash_and_keeps_number_alignment() -> None:
    assert table(("a", None), (None, 7)) == ["NAME  COUNT", "a         -", "-         7"]


def test_no_line_ends_in_spaces() -> None:
    assert all(line == line.rstrip() for line in table(("a", "x"), ("b", "long"), ("c", "")))


def test_booleans_are_words_and_fractions_have_one_digit() -> None:
    assert table((True, 0.25), (False, 10.0)) == ["NAME  COUNT", "yes     0.2", "no     10.0"]


def test_a_table_without_rows_has_only_its_titles() -> None:
    assert table() == ["NAME  COUNT"]


def test_a_column_may_set_its_alignment() -> None:
    assert table(("a", "7%"), columns=("NAME", Column("USED", right=True))) == ["NAME  USED", "a       7%"]


@pytest.mark.parametrize(
    ("room", "lines"),
    [
        (26, ["TOPIC  MEMBER    HOST  LAG", "a      billing1  h      12"]),
        (25, ["TOPIC  MEMBER    HOST", "    LAG", "a      billing1  h", "     12"]),
        (14, ["TOPIC", "    MEMBER", "    HOST  LAG", "a", "    billing1", "    h      12"]),
        (1, ["TOPIC", "    MEMBER", "    HOST", "    LAG", "a", "    billing1", "    h", "     12"]),
    ],
)
def test_columns_too_wide_for_the_terminal_go_to_lines_below(room: int, lines: list[str]) -> None:
    screen = Screen(out=io.StringIO(), columns=room)
    screen.table(["TOPIC", "MEMBER", "HOST", "LAG"], [("a", "billing1", "h", 12)])
    assert written(screen).splitlines() == lines


HOSTILE = ("g" * 2000, "日" * 900, "e\u0301" * 300, "a\nb\tc\x1b[31m" + "\x00" * 50, " " * 40, "x  Stable  y", "ก็" * 200, "\u200b\u202eabc")


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
@pytest.mark.parametrize("name", HOSTILE)
def test_no_line_of_a_table_is_wider_than_the_terminal(name: str, columns: int) -> None:
    screen = Screen(out=io.StringIO(), columns=columns)
    screen.table(["GROUP", "STATE", "MEMBERS"], [("orders", "Stable", 3), (name, "Empty", None), (name, name, 1)])
    lines = written(screen).splitlines()
    assert max(map(width, lines)) <= max(columns, 28)
    assert all(line.isprintable() for line in lines)


def test_a_name_longer_than_the_terminal_leaves_the_other_columns_on_its_line() -> None:
    screen = Screen(out=io.StringIO(), columns=50)
    screen.table(["GROUP", "STATE", "MEMBERS"], [("orders", "Stable", 3), ("first" + "g" * 2000 + "last", "Empty", 0)])
    lines = written(screen).splitlines()
    assert [len(line) for line in lines] == [50, 50, 50]
    assert lines[1].split() == ["orders", "Stable", "3"]
    assert lines[2].startswith("firstgg")
    assert "…" in lines[2]
    assert "last  Empty         0" in lines[2]


def test_a_name_longer_than_the_terminal_moves_no_other_row_to_more_lines() -> None:
    def rows_on_one_line(*more: tuple[object, ...]) -> list[str]:
        screen = Screen(out=io.StringIO(), columns=40)
        screen.table(["GROUP", "STATE", "HOST"], [("orders", "Stable", "192.168.100.100"), *more])
        return [line for line in written(screen).splitlines() if line.startswith("orders ")]

    assert [line.split() for line in rows_on_one_line()] == [["orders", "Stable", "192.168.100.100"]]
    assert [line.split() for line in rows_on_one_line(("g" * 2000, "Empty", "h"))] == [["orders", "Stable", "192.168.100.100"]]


def test_what_is_longer_than_a_line_is_whole_in_a_pipe() -> None:
    name = "g" * 2000
    assert name in table((name, 1))[1]


@pytest.mark.parametrize(
    ("text", "cells", "expected"),
    [
        ("abcdefghij", 10, "abcdefghij"),
        ("abcdefghijk", 10, "abcde…hijk"),
        ("日本語日本語", 9, "日本…本語"),
        ("日本語日本語", 8, "日本…語"),
        ("abcde\u0301fghi", 5, "ab…hi"),
        ("aaaae\u0301b", 4, "aa…b"),
    ],
)
def test_the_middle_is_cut_out_by_the_width_of_characters(text: str, cells: int, expected: str) -> None:
    assert shortened(text, cells) == expected
    assert width(expected) <= cells


def test_the_ellipsis_is_one_that_the_terminal_can_show() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), "ascii")
    Screen(out=stream, columns=30).table(["GROUP"], [("g" * 100,)])
    stream.flush()
    assert stream.buffer.getvalue().decode().splitlines()[1] == "g" * 14 + "..." + "g" * 13


def test_spaces_that_look_like_a_gap_between_columns_are_escaped() -> None:
    assert table(("orders  Stable", 1), (" a ", 2))[1:] == ["orders \\x20Stable      1", "\\x20a\\x20              2"]
    assert table(("two apples", 1))[1] == "two apples      1"


def test_wide_and_combining_characters_keep_columns_aligned() -> None:
    assert width("日本") == 4
    assert width("e\u0301") == 1
    assert width("ก็") == 1
    assert width("\u1112\u1161\u11ab") == 2
    assert table(("日本", 1), ("abcd", 2)) == ["NAME  COUNT", "日本      1", "abcd      2"]


def test_colours_do_not_move_columns() -> None:
    rows = ((Painted("good", Role.GOOD), 1), (Painted("x", Role.BAD), 22))
    coloured = table(*rows, colour=True)
    assert coloured[1] == "\x1b[32mgood\x1b[0m      1"
    assert [line.replace("\x1b[32m", "").replace("\x1b[31m", "").replace("\x1b[2m", "").replace("\x1b[0m", "") for line in coloured] == table(*rows)


def test_control_characters_from_peers_are_escaped() -> None:
    assert plain("a\x1b[31mb\rc\nd\te\x00\x9b\u202e\ud800") == "a\\x1b[31mb\\rc\\nd\\te\\x00\\x9b\\u202e\\ud800"
    assert plain("Größe 日本") == "Größe 日本"
    assert table(("a\x1b[2J", 1), colour=True)[1] == "a\\x1b[2J      1"
    screen = new_screen()
    screen.warn("the broker says \x1b]0;title\x07")
    assert screen.err.getvalue() == "tenure: the broker says \\x1b]0;title\\x07\n"  # type: ignore[attr-defined]


def test_json_is_one_document_or_an_object_a_line() -> None:
    screen = new_screen(json=True)
    screen.document({"group_id": "Größe", "lag": None})
    assert written(screen) == ""  # a document is held back, as the command may still fail
    end_json(screen, 0, None)
    assert json.loads(written(screen)) == {"group_id": "Größe", "lag": None}
    assert written(screen).startswith('{\n  "group_id": "Größe"')
    lines = new_screen(json=True)
    lines.json_line({"a": 1})
    lines.json_line({"b": "\x1b"})
    assert written(lines) == '{"a": 1}\n{"b": "\\u001b"}\n'


@pytest.mark.parametrize("c1", ["\x7f", "\x9b", "\u202e", "\ud800", "\U000e0001"])
def test_control_characters_are_escaped_in_json(c1: str) -> None:
    screen = new_screen(json=True)
    screen.json_line({"a": c1})
    assert c1 not in written(screen)
    assert json.loads(written(screen)) == {"a": c1}


def test_colour_is_used_only_on_terminals_that_support_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert shows_colour(Terminal())
    assert not shows_colour(io.StringIO())
    assert not shows_colour(None)
    monkeypatch.setenv("TERM", "dumb")
    assert not shows_colour(Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not shows_colour(Terminal())


@pytest.mark.parametrize(("typed", "confirmed"), [("y\n", True), ("YES\n", True), ("n\n", False), ("\n", False), ("", False), ("yesterday\n", False)])
def test_a_confirmation_is_asked_on_a_terminal(monkeypatch: pytest.MonkeyPatch, typed: str, confirmed: bool) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    screen = Screen(out=Terminal())
    assert screen.confirm("delete 2 topics?", argparse.Namespace(yes=False)) is confirmed
    assert written(screen).startswith("delete 2 topics? [y/N] ")


def test_no_confirmation_is_asked_with_yes_or_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    screen = Screen(out=Terminal())
    assert screen.confirm("delete?", argparse.Namespace(yes=True))
    piped = new_screen()
    assert piped.confirm("delete?", argparse.Namespace(yes=False))
    monkeypatch.setattr(sys, "stdin", None)
    assert screen.confirm("delete?", argparse.Namespace(yes=False))
    assert written(screen) == written(piped) == ""


def test_an_encoding_that_lacks_a_character_gets_an_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    Screen.of(argparse.Namespace()).line("Größe")
    stream.flush()
    assert stream.buffer.getvalue() == b"Gr\\xf6\\xdfe\n"
