"""The results as text: aligned columns, one block for each kind of figure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from bench.instructions import table as instructions_table
from bench.machine import BUSY_NOISY, LOAD_NOISY, SPREAD_NOISY, STEAL_NOISY
from bench.rows import (
    ALWAYS_AT_MOST,
    CODEC,
    CPU_FIELD,
    DATA_ROWS,
    GOOD_ENOUGH,
    LOAD_ROWS,
    OF_KAFKA_AT_MOST,
    PIPELINE_ROWS,
    SINGLE_ROWS,
    DataRow,
    Figure,
    Metric,
    PipelineRow,
    SingleRow,
)

Report = dict[str, Any]


def target_column(compiled: bool) -> str:
    """The field of `Targets` for this build."""
    return "compiled" if compiled else "plain"


def verdict(value: float, at_most: float | None) -> str:
    if at_most is None:
        return ""
    return "ok" if value <= at_most else "OVER"


def missed_targets(report: Report) -> list[str]:
    """A line for each missed target."""
    return [*_missed_ratios(report), *_targets_missed_beside_kafka(report), *_missed_with_flush_always(report), *_missed_in_data_rows(report), *_missed_in_single_rows(report), *_missed_by_the_codec(report), *_missed_by_the_pipeline(report)]


def _missed_ratios(report: Report) -> Iterator[str]:
    held = target_column(report["compiled"])
    for row in LOAD_ROWS:
        for metric in report["rows"].get(row.name, {}).get("metrics", ()):
            if metric["targets"] and "ours" in metric and metric["ours"]["median"] > metric["targets"][held]:
                yield f"{row.name} {metric['metric']}: {metric['ours']['median']:.2f}, at most {metric['targets'][held]:g}"


def _targets_missed_beside_kafka(report: Report) -> Iterator[str]:
    for row in LOAD_ROWS:
        for metric in report["rows"].get(row.name, {}).get("metrics", ()):
            for build, at_most in _held_to_kafka(report).items():
                ratio = metric.get(build, {})
                if "of_kafka" in ratio and ratio["of_kafka"] > at_most and ratio["median"] > GOOD_ENOUGH:
                    yield f"{row.name} {metric['metric']}, {_build(report, build)}: {ratio['of_kafka']:.2f} of Kafka's, at most {at_most:g}"
    for data_row in DATA_ROWS:
        for figure, entry in zip(data_row.figures, report["rows"].get(data_row.name, {}).get("figures", ()), strict=False):
            of_kafka = entry.get("of_kafka" if report["compiled"] else "compiled_of_kafka")
            if figure.of_kafka is not None and of_kafka is not None and of_kafka < figure.of_kafka:
                yield f"{data_row.name} {figure.name}, compiled: {of_kafka:.2f} times Kafka's, at least {figure.of_kafka:g}"


def _held_to_kafka(report: Report) -> dict[str, float]:
    """The maximum of each column, relative to Kafka. If this tree is compiled, the column `ours` has the target for compiled code."""
    return OF_KAFKA_AT_MOST | ({"ours": OF_KAFKA_AT_MOST["compiled"]} if report["compiled"] else {})


def _build(report: Report, name: str) -> str:
    return "compiled" if name == "compiled" or report["compiled"] else "plain"


def _missed_with_flush_always(report: Report) -> Iterator[str]:
    for row in LOAD_ROWS:
        ratio = report["rows"].get(row.name, {}).get("always_to_interval")
        if ratio and ratio["median"] > ALWAYS_AT_MOST:
            yield f"{row.name} with offsets.flush=always: {ratio['median']:.2f} times the cost, at most {ALWAYS_AT_MOST:g}"


def _missed_in_data_rows(report: Report) -> Iterator[str]:
    for row in DATA_ROWS:
        for figure, entry in zip(row.figures, report["rows"].get(row.name, {}).get("figures", ()), strict=False):
            if "ours" in entry and not figure.met(entry["ours"]["median"]):
                yield f"{row.name} {figure.name}: {rounded(entry['ours']['median'])} {figure.unit}, to be {figure.target}"


def _missed_in_single_rows(report: Report) -> Iterator[str]:
    for row in SINGLE_ROWS:
        result = report["rows"].get(row.name, {})
        if row.at_most is not None and "ours" in result and result["ours"]["median"] > row.at_most:
            yield f"{row.name}: {result['ours']['median']:.3g} {row.unit}, at most {row.at_most:g}"


def _missed_by_the_codec(report: Report) -> Iterator[str]:
    for row in report["rows"].get(CODEC, {}).get("rows", ()):
        if row["judged"] and not row["met"]:
            yield f"codec, {row['message']}: encode {row['encode_times_faster']} times faster, decode {row['decode_times_slower']} slower"


def _missed_by_the_pipeline(report: Report) -> Iterator[str]:
    for row in PIPELINE_ROWS:
        for figure, entry in zip(row.figures, report["rows"].get(row.name, {}).get("figures", ()), strict=False):
            if not figure.met(entry["ours"]["median"]):
                yield f"{row.name} {figure.name}: {rounded(entry['ours']['median'])} {figure.unit}, to be {figure.target}"


def text(report: Report) -> str:
    blocks = [heading(report), load_lines(report), compared_with_kafka(report), instruction_counts(report), flush_cost(report), data_lines(report), single_lines(report), codec_lines(report), pipeline_lines(report), footing(report)]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines)


def heading(report: Report) -> list[str]:
    machine = report["machine"]
    built = "compiled" if report["compiled"] else "plain Python"
    return [
        f"{machine['system']}, {machine['processor']}, {machine['cores']} cores; Python {machine['python']}, {built}",
        f"{report['cores']}; {report['rounds']} rounds of {report['seconds']:g} s, floor and broker in turn; {', '.join(report['settings'])}",
    ]


def load_lines(report: Report) -> list[str]:
    """One line for each metric of each row. A row that was not measured shows its targets, and below the reason."""
    rows = [(row, report["rows"][row.name]) for row in LOAD_ROWS if row.name in report["rows"]]
    if not rows:
        return []
    held, other = target_column(report["compiled"]), target_column(not report["compiled"])
    head = ["broker / floor", "", "floor us", "ours us", "ratio", "min..max", "least", f"{held}, at most", "", other, "good", "Kafka"]
    head += ["Kafka here", "rate", "p50", "p99"]
    if not any("kafka" in result for _, result in rows):
        head[12] = ""
    lines: list[Sequence[str]] = [head]
    reasons: dict[str, list[str]] = {}
    for row, result in rows:
        measured = {metric["metric"]: metric for metric in result.get("metrics", ())}
        lines += [[row.title, *_cells(metric, result, measured.get(metric.name, {}), held, other)] for metric in row.metrics]
        if result["status"] != "measured":
            reasons.setdefault(_reason(result), []).append(row.name)
        if "kafka_failed" in result:
            reasons.setdefault(f"Kafka failed: {result['kafka_failed']}", []).append(row.name)
    return [*aligned(lines), *(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())]


def _cells(metric: Metric, result: Report, measured: Report, held: str, other: str) -> Iterator[str]:
    """The cells of one line of the load table, after the title."""
    ours = measured.get("ours")
    yield metric.name
    yield f"{result['floor'][metric.field]:.2f}" if "floor" in result else "-"
    if ours:
        yield from (f"{result['ours'][metric.field]:.2f}", f"{ours['median']:.2f}", f"{ours['min']:.2f}..{ours['max']:.2f}")
        yield f"{ours['least']:.2f}" if "least" in ours else "-"
    else:
        yield from ("-", result["status"], "-", "-")
    if metric.targets:
        at_most = getattr(metric.targets, held)
        yield from (f"{at_most:g}", verdict(ours["median"], at_most) if ours else "")
        yield from (f"{getattr(metric.targets, other):g}", f"{metric.targets.good:g}", metric.targets.kafka)
    else:
        yield from ("-", "", "-", "-", "-")
    yield f"{measured['kafka']['median']:.2f}" if "kafka" in measured else "failed" if "kafka_failed" in result else ""
    for field in ("rps", "p50_us", "p99_us"):
        yield f"{result['beside'][field]:.2f}" if "beside" in result else "-"


def compared_with_kafka(report: Report) -> list[str]:
    """Processor time of a request, compared with a warm Kafka and a compiled broker in the same rounds."""
    lines: list[Sequence[str]] = [["broker / floor, in turn", "", "ours", "compiled", "at most", "", "Kafka", "ours / Kafka", "", "compiled / Kafka", ""]]
    held = _held_to_kafka(report)
    for row in LOAD_ROWS:
        result = report["rows"].get(row.name, {})
        for metric in result.get("metrics", ()):
            if "compiled" not in metric and "kafka" not in metric:
                continue
            targets = metric["targets"]
            at_most = targets["compiled"] if targets else None
            cells = [row.title, metric["metric"]]
            cells += [f"{metric[name]['median']:.2f}" if name in metric else "-" for name in ("ours", "compiled")]
            cells += [f"{at_most:g}" if at_most else "-", verdict(metric["compiled"]["median"], at_most) if "compiled" in metric else ""]
            cells.append(f"{metric['kafka']['median']:.2f}" if "kafka" in metric else "-")
            for name in ("ours", "compiled"):
                ratio = metric.get(name, {})
                known = "of_kafka" in ratio
                good = known and (ratio["of_kafka"] <= held[name] or ratio["median"] <= GOOD_ENOUGH)
                cells += [f"{ratio['of_kafka']:.2f}" if known else "-", ("ok" if good else "OVER") if known else ""]
            lines.append(cells)
    if len(lines) == 1:
        return []
    laps = report.get("kafka_laps", [])
    warmed = [f"Kafka's cost while it warmed up, of the first lap's: {' '.join(f'{lap:.2f}' for lap in laps)}"] if laps else []
    return [*aligned(lines), f"targets beside Kafka: ours at most {held['ours']:g}, compiled at most {held['compiled']:g}, or {GOOD_ENOUGH:g} floors", *warmed]


def instruction_counts(report: Report) -> list[str]:
    return list(instructions_table(report["instructions"])) if report.get("instructions") else []


def flush_cost(report: Report) -> list[str]:
    """The cost of flushing before each reply."""
    lines: list[Sequence[str]] = [["offsets.flush=always / interval", "", "interval us", "always us", "ratio", "min..max", "at most", ""]]
    for row in LOAD_ROWS:
        result = report["rows"].get(row.name, {})
        if "always_to_interval" in result:
            ratio = result["always_to_interval"]
            costs = [f"{result[name][CPU_FIELD]:.2f}" for name in ("ours", "always")]
            figures = [*costs, f"{ratio['median']:.2f}", f"{ratio['min']:.2f}..{ratio['max']:.2f}"]
            lines.append([row.title, "CPU", *figures, f"{ALWAYS_AT_MOST:g}", verdict(ratio["median"], ALWAYS_AT_MOST)])
    return list(aligned(lines)) if len(lines) > 1 else []


def data_lines(report: Report) -> list[str]:
    """One line for each figure of each data row."""
    rows = [(row, report["rows"][row.name]) for row in DATA_ROWS if row.name in report["rows"]]
    if not rows:
        return []
    lines: list[Sequence[str]] = [
        [
            "topics",
            "",
            "",
            "floor",
            "ours",
            "min..max",
            "target",
            "",
            "of floor",
            "compiled" if _any_compiled(rows) else "",
            *(("Kafka here", "of Kafka") if _any_kafka(rows) else ("", "")),
            *(("compiled of Kafka", "at least", "") if _any_kafka(rows) and _any_compiled(rows) else ("", "", "")),
        ]
    ]
    reasons: dict[str, list[str]] = {}
    for row, result in rows:
        by_figure = {entry["figure"]: entry for entry in result.get("figures", ())}
        for figure in row.figures:
            entry = by_figure.get(figure.name, {})
            ours = entry.get("ours")
            lines.append([
                row.title,
                figure.name,
                figure.unit,
                rounded(entry["floor"]["median"]) if "floor" in entry else "-",
                rounded(ours["median"]) if ours else result["status"],
                f"{rounded(ours['min'])}..{rounded(ours['max'])}" if ours else "-",
                figure.target,
                ("ok" if figure.met(ours["median"]) else "OVER") if ours and figure.target != "-" else "",
                f"{entry['of_floor']:.2f}" if "of_floor" in entry else "-",
                rounded(entry["compiled"]["median"]) if "compiled" in entry else "",
                rounded(entry["kafka"]["median"]) if "kafka" in entry else "failed" if "kafka_failed" in result else "",
                f"{entry['of_kafka']:.2f}" if "of_kafka" in entry else "",
                *_compiled_to_kafka(figure, entry),
            ])  # fmt: skip
        if result["status"] != "measured":
            reasons.setdefault(_reason(result), []).append(row.name)
        if "kafka_failed" in result:
            reasons.setdefault(f"Kafka failed: {result['kafka_failed']}", []).append(row.name)
    return [*aligned(lines), *(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())]


def _compiled_to_kafka(figure: Figure, entry: Report) -> tuple[str, str, str]:
    """The ratio of the compiled broker to Kafka, its minimum, and the verdict."""
    ratio = entry.get("compiled_of_kafka")
    if ratio is None:
        return "", "", ""
    if figure.of_kafka is None:
        return f"{ratio:.2f}", "-", ""
    return f"{ratio:.2f}", f"{figure.of_kafka:g}", "ok" if ratio >= figure.of_kafka else "OVER"


def _any_compiled(rows: Sequence[tuple[DataRow, Report]]) -> bool:
    return any("compiled" in entry for _, result in rows for entry in result.get("figures", ()))


def _any_kafka(rows: Sequence[tuple[DataRow, Report]]) -> bool:
    return any("kafka_failed" in result or any("kafka" in entry for entry in result.get("figures", ())) for _, result in rows)


def rounded(value: float) -> str:
    """Three significant digits, without an exponent."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


R = TypeVar("R", SingleRow, PipelineRow)


def measured(report: Report, rows: Iterable[R], notes: list[str]) -> Iterator[tuple[R, Any]]:
    """Yield the measured rows with their results; for each other row append the reason to `notes`."""
    for row in rows:
        result = report["rows"].get(row.name)
        if result is None:
            continue
        if result["status"] == "measured":
            yield row, result
        else:
            notes.append(f"{row.title}: {_reason(result)}")


def single_lines(report: Report) -> list[str]:
    lines: list[Sequence[str]] = []
    notes: list[str] = []
    for row, result in measured(report, SINGLE_ROWS, notes):
        ours = result["ours"]
        compared_with_kafka = [f"{name} {result[name]['median']:.3g}" for name in ("floor", "kafka") if name in result]
        lines.append(
            [
                row.title,
                row.unit,
                f"{ours['median']:.3g}",
                f"{ours['min']:.3g}..{ours['max']:.3g}",
                "-" if row.at_most is None else f"{row.at_most:g}",
                verdict(ours["median"], row.at_most),
                row.kafka or "-",
                ", ".join(compared_with_kafka),
            ]
        )
    if not lines:
        return notes
    return [*aligned([["", "", "median", "min..max", "at most", "", "Kafka", "here"], *lines]), *notes]


def codec_lines(report: Report) -> list[str]:
    result = report["rows"].get(CODEC)
    if result is None:
        return []
    if result["status"] != "measured":
        return [f"codec beside kio's: {_reason(result)}"]
    targets = result["targets"]
    lines: list[Sequence[str]] = [["codec beside kio's", "encode ns", "kio", "faster", "decode ns", "kio", "slower", ""]]
    for row in result["rows"]:
        verdict_text = "" if not row["judged"] else "ok" if row["met"] else "OVER"
        encode = (f"{row['encode_ns']}", f"{row['kio_encode_ns']}", f"{row['encode_times_faster']:.1f}")
        lines.append([row["message"], *encode, f"{row['decode_ns']}", f"{row['kio_decode_ns']}", f"{row['decode_times_slower']:.2f}", verdict_text])
    return [
        *aligned(lines),
        f"targets: encode at least {targets['encode_times_faster']:g} times faster, decode at most {targets['decode_times_slower']:g} times slower",
    ]


def pipeline_lines(report: Report) -> list[str]:
    lines: list[Sequence[str]] = []
    notes: list[str] = []
    for row, result in measured(report, PIPELINE_ROWS, notes):
        for figure, entry in zip(row.figures, result["figures"], strict=True):
            ours = entry["ours"]
            verdict_text = "" if figure.target == "-" else "ok" if figure.met(ours["median"]) else "MISSED"
            lines.append([row.title, figure.name, figure.unit, rounded(ours["median"]), f"{rounded(ours['min'])}..{rounded(ours['max'])}", figure.target, verdict_text])
    if not lines:
        return notes
    return [*aligned([["a million records", "", "", "median", "min..max", "target", ""], *lines]), *notes]


def footing(report: Report) -> list[str]:
    """How reliable the figures are, the missed targets, and the duration."""
    noise = report["noise"]
    doubts = []
    if noise["load_before"] > LOAD_NOISY:
        doubts.append(f"{noise['load_before']:.1f} tasks ran before the measurement")
    if noise["steal"] > STEAL_NOISY:
        doubts.append(f"{100 * noise['steal']:.0f} % of the time went to other virtual machines")
    if noise["floor_spread"] > SPREAD_NOISY:
        doubts.append(f"the floor's own cost differed by {100 * noise['floor_spread']:.0f} % between rounds")
    if noise["busy"] < BUSY_NOISY:
        doubts.append(f"the broker was only {100 * noise['busy']:.0f} % busy: something else ran on the generator's core")
    rounds = {name: result["rounds"] for name, result in report["rows"].items() if "rounds" in result}
    slow = f"a fixed piece of Python took up to {noise['witness_worst']:.1f} times its best"
    if disturbed := [name for name, counts in rounds.items() if not counts["calm_enough"]]:
        doubts.append(f"the server's core was shared ({slow}), too often to leave out such rounds in {', '.join(disturbed)}")
    excluded = sum(counts["taken"] - counts["calm"] for counts in rounds.values())
    waited = f", or the run waited until it was ({slow}; {excluded} rounds left out)" if excluded else ""
    noise_text = f"the machine was quiet{waited}: the floor's cost differed by {100 * noise['floor_spread']:.0f} % between rounds"
    lines = ["NOISY, so read the ratios with care: " + "; ".join(doubts) if doubts else noise_text]
    lines += [f"missed: {line}" for line in missed_targets(report)]
    failed = [name for name, result in report["rows"].items() if result["status"] == "failed"]
    lines += [f"FAILED: {', '.join(failed)}"] * bool(failed)
    return [*lines, f"took {report['took_s']:.0f} s"]


def _reason(result: Report) -> str:
    if result["status"] == "not served yet":
        return f"not served yet (the broker does not offer {', '.join(result['missing'])})"
    return f"{result['status']}: {result['reason']}"


def aligned(lines: Sequence[Sequence[str]]) -> Iterator[str]:
    """Aligned columns, the first to the left, the others to the right, without empty columns."""
    widths = [max(len(line[n]) for line in lines) for n in range(len(lines[0]))]
    for line in lines:
        cells = [
            cell.ljust(width) if n == 0 else cell.rjust(width) for n, (cell, width) in enumerate(zip(line, widths, strict=True)) if width
        ]
        yield "  ".join(cells).rstrip()
