"""Output of commands: tables, JSON, and questions before changes. Control characters in text from the cluster are escaped."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from broker.logging.secrets import hide

if TYPE_CHECKING:
    from cli.failure import Failure

GAP = "  "
SIGNALLED = 128  # the lowest exit code of a command that a signal ended
INDENT = "    "  # before columns that do not fit and follow in a line below
SHORTENED_MIN = 12  # cells of a shortened column: enough to tell most names apart
HANGUL_PARTS = range(0x1160, 0x1200)  # vowels and finals, drawn within the cell of the consonant before


class Role(Enum):
    """The meaning of a text, shown as a colour."""

    GOOD = "32"
    BAD = "31"
    CAREFUL = "33"
    DIM = "2"
    STRONG = "1"


class Column(NamedTuple):
    title: str
    right: bool | None = None  # None: right-aligned if all values are numbers
    role: Role | None = None


class Painted(NamedTuple):
    """A cell with its own colour."""

    text: object
    role: Role | None


def plain(text: str) -> str:
    """The text with unprintable characters escaped, safe on a terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else escaped(char) for char in text)


def escaped(char: str) -> str:
    if "\udc80" <= char <= "\udcff":  # a byte of the command line that is not UTF-8
        return f"\\x{ord(char) & 0xFF:02x}"
    return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char) or char.encode("unicode_escape", "backslashreplace").decode("ascii")


def counted(number: int, noun: str) -> str:
    plural_ending = "es" if noun.endswith("ch") else "s"
    return f"{number} {noun}{'' if number == 1 else plural_ending}"


def topic_id_text(id: bytes | None) -> str | None:
    """The topic id in the base64 of Kafka's tools; None for the zero id, which stands for an unknown one."""
    import base64

    return base64.urlsafe_b64encode(id).decode().rstrip("=") if id and any(id) else None


def json_plain(text: str) -> str:
    """A JSON text with unprintable characters escaped, except line feeds, which occur only between its tokens."""
    if text.isprintable():
        return text
    return "".join(char if char == "\n" or char.isprintable() else json_escaped(char) for char in text)


def json_escaped(char: str) -> str:
    import json

    return json.dumps(char)[1:-1].replace("\x7f", "\\u007f")  # json does not escape ASCII DEL


class Screen:
    def __init__(
        self, *, json: bool = False, colour: bool = False, columns: int | None = None, out: TextIO | None = None, err: TextIO | None = None
    ) -> None:
        self.json = json
        self.colour = colour
        self.columns = columns  # of the terminal; None: no limit
        self.ellipsis = ellipsis_of(out or sys.stdout)
        self.pending_document: dict[str, Any] | None = None  # printed when the command ends
        self.problems: list[Failure] = []
        self._out = out
        self._err = err

    @classmethod
    def of(cls, options: argparse.Namespace) -> Screen:
        screen = cls(json=bool(getattr(options, "json", False)), colour=shows_colour(sys.stdout), columns=terminal_columns(sys.stdout))
        if isinstance(screen.out, io.TextIOWrapper):  # escape characters that the terminal's encoding lacks
            screen.out.reconfigure(errors="backslashreplace")
        options.screen = screen  # main() uses it to end the JSON output
        return screen

    @property
    def out(self) -> TextIO:
        return self._out or sys.stdout or null_stream()

    @property
    def err(self) -> TextIO:
        return self._err or sys.stderr or null_stream()

    def line(self, text: str = "") -> None:
        self.out.write(hide(text) + "\n")

    def warn(self, text: str) -> None:
        """Print one line on standard error, after the output so far."""
        self.out.flush()
        self.err.write(f"tenure: {plain(hide(text))}\n")
        self.err.flush()

    def fail(self, problem: Failure, line: str | None = None) -> int:
        """Report the failure of a part of the command; return its exit code."""
        problem = problem if line is None else problem.with_line(line)
        self.warn(problem.line)
        self.problems.append(problem)
        return problem.exit_code

    def document(self, value: dict[str, Any]) -> None:
        """Set the JSON document of the command. It is printed at the end, with a later error."""
        self.pending_document = value

    def json_line(self, value: object) -> None:
        import json

        self.line(json_plain(json.dumps(value, ensure_ascii=False)))
        self.out.flush()

    def name(self, text: str) -> str:
        """A name from the cluster in a line of text: escaped, and on a terminal not longer than half of a line."""
        return self._shortened(plain(text), self.columns and max(self.columns // 2, SHORTENED_MIN))

    def _shortened(self, text: str, cells: int | None) -> str:
        return text if cells is None else shortened(text, cells, self.ellipsis)

    def paint(self, text: str, role: Role | None) -> str:
        return f"\x1b[{role.value}m{text}\x1b[0m" if self.colour and role is not None and text else text

    def table(self, columns: Sequence[Column | str], rows: Iterable[Sequence[object]]) -> None:
        """Print aligned columns under their titles, None as "-". On a terminal, cells that are longer than a line are shortened in the middle,
        and columns that do not fit go to lines below.
        """
        heads = [Column(column) if isinstance(column, str) else column for column in columns]
        cells = [[cell if isinstance(cell, Painted) else Painted(cell, head.role) for head, cell in zip(heads, row, strict=True)] for row in rows]
        right_aligned = [all_numbers([row[at].text for row in cells]) if head.right is None else head.right for at, head in enumerate(heads)]
        titles = [Painted(head.title, Role.DIM) for head in heads]
        shown = [[(cell_text(cell.text), cell.role) for cell in row] for row in [titles, *cells]]
        widths = fitting_widths([[width(row[at][0]) for row in shown] for at in range(len(heads))], self.columns)
        shown = [[(self._shortened(text, widths[at]), role) for at, (text, role) in enumerate(row)] for row in shown]
        for row in shown:
            for number, line in enumerate(column_lines(widths, self.columns)):
                self.line(INDENT * (number > 0) + self._table_line(line, row, widths, right_aligned))

    def _table_line(self, line: range, row: Sequence[tuple[str, Role | None]], widths: Sequence[int], right_aligned: Sequence[bool]) -> str:
        parts = []
        for at in line:
            text, role = row[at]
            padding = " " * (widths[at] - width(text))
            painted = self.paint(text, role)
            parts.append(padding + painted if right_aligned[at] else painted if at == line[-1] else painted + padding)
        return GAP.join(parts).rstrip(" ")

    @property
    def is_terminal(self) -> bool:
        return self.out.isatty()

    @property
    def can_ask(self) -> bool:
        """Whether somebody at a terminal can answer."""
        return bool(sys.stdin and sys.stdin.isatty() and self.is_terminal)

    def captured(self) -> Screen:
        """A screen of the same kind whose output is kept in its stream `out`; that of a terminal with the errors."""
        stream = io.StringIO()
        screen = Screen(json=self.json, colour=self.colour, columns=self.columns, out=stream, err=stream if self.is_terminal else self._err)
        screen.ellipsis = self.ellipsis
        return screen

    def confirm(self, question: str, options: argparse.Namespace) -> bool:
        """Ask on a terminal whether to proceed; with --yes, or without a terminal, the answer is yes."""
        if getattr(options, "yes", False) or not self.can_ask:
            return True
        self.out.write(f"{question} [y/N] ")
        self.out.flush()
        try:
            answer = sys.stdin.readline()
        except KeyboardInterrupt:
            self.line()
            raise
        if not answer.endswith("\n"):
            self.line()
        return answer.strip().lower() in ("y", "yes")


def end_json(screen: Screen | None, code: int, error: Failure | None) -> None:
    """Print the command's JSON document with its error: `error`, or else the first failure of a part, preferably one with this exit code.

    `errors` are the failures of all parts.
    """
    import json

    screen = screen or Screen()
    if error is None and 0 < code < SIGNALLED:
        error = next((problem for problem in screen.problems if problem.exit_code == code), next(iter(screen.problems), None))
    error_document: dict[str, object] = {"error": error.document()} if error is not None else {}
    if error is not None and screen.problems:
        error_document["errors"] = [problem.document() for problem in screen.problems]
    document, screen.pending_document = screen.pending_document, None
    if document is not None:
        screen.line(json_plain(json.dumps(document | error_document, indent=2, ensure_ascii=False)))
    elif error_document:
        screen.json_line(error_document)


def ellipsis_of(stream: TextIO | None) -> str:
    """What stands for a cut-out middle, in characters that the stream can show."""
    try:
        "…".encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeError, LookupError):
        return "..."
    return "…"


def null_stream() -> TextIO:
    """A stream to use in place of one that the parent process has closed."""
    return io.StringIO()


def shows_colour(stream: TextIO | None) -> bool:
    if stream is None or os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb":
        return False
    return stream.isatty()


def terminal_columns(stream: TextIO | None) -> int | None:
    try:
        return (os.get_terminal_size(stream.fileno()).columns or None) if stream is not None else None
    except (OSError, ValueError):  # not a terminal, or of unknown size
        return None


def fitting_widths(cells: Sequence[Sequence[int]], columns: int | None) -> list[int]:
    """The width of each column on a terminal of `columns` cells; `cells`: the widths of its cells. A column with cells that are wider than a line
    gets what the others leave of one, and at least the width of its other cells, so that such a cell moves no other row to more lines.
    """
    widths = [max(of_column) for of_column in cells]
    line = max((columns or 0) - len(INDENT), SHORTENED_MIN)
    wide = sum(width > line for width in widths)
    if columns is None or not wide:
        return widths
    share = (columns - sum(width for width in widths if width <= line) - len(GAP) * (len(widths) - 1)) // wide
    ordinary = [max((width for width in of_column if width <= line), default=0) for of_column in cells]
    return [max(usual, min(share, columns), SHORTENED_MIN) if width > line else width for width, usual in zip(widths, ordinary, strict=True)]


def column_lines(widths: Sequence[int], columns: int | None) -> list[range]:
    """The columns in each line of a row, as ranges of column numbers."""
    lines: list[range] = []
    begin = used_width = 0
    for at, width_of_column in enumerate(widths):
        if at > begin and columns is not None and used_width + len(GAP) + width_of_column > columns:
            lines.append(range(begin, at))
            begin = at
        used_width = len(INDENT) * bool(lines) + width_of_column if at == begin else used_width + len(GAP) + width_of_column
    return [*lines, range(begin, len(widths))]


def cell_text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1f}"
    return visible_spaces(plain(str(value)))


def visible_spaces(text: str) -> str:
    """The text with spaces escaped where they would look like the gap between two columns: at both ends, and after another space."""
    if "  " not in text and text == text.strip(" "):
        return text
    return "".join("\\x20" if char == " " and (at in (0, len(text) - 1) or text[at - 1] == " ") else char for at, char in enumerate(text))


def shortened(text: str, cells: int, ellipsis: str = "…") -> str:
    """The text in at most so many cells, with an ellipsis for its middle."""
    if width(text) <= cells:
        return text
    room = cells - width(ellipsis)
    if room < 2:
        return fitting(text, cells)
    begin = fitting(text, (room + 1) // 2)
    end = fitting(text[::-1], room - width(begin))[::-1].lstrip("".join(sorted({char for char in text if not cells_of(char)})))
    return f"{begin}{ellipsis}{end}"


def fitting(text: str, cells: int) -> str:
    """The longest beginning of the text that fits into so many cells."""
    for at, char in enumerate(text):
        cells -= cells_of(char)
        if cells < 0:
            return text[:at]
    return text


def all_numbers(values: Sequence[object]) -> bool:
    numbers = [value for value in values if value is not None]
    return bool(numbers) and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in numbers)


def width(text: str) -> int:
    """The number of terminal cells that the text takes."""
    return len(text) if text.isascii() else sum(map(cells_of, text))


def cells_of(char: str) -> int:
    """Two for East Asian wide characters, none for marks that are drawn over the character before."""
    import unicodedata

    if char.isascii():
        return 1
    if unicodedata.category(char) in ("Mn", "Me") or ord(char) in HANGUL_PARTS:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
