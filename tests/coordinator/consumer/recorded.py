"""Programs with Kafka's answers, in files: one program in a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from coordinator import GroupConfig
from coordinator.consumer.config import ConsumerConfig, MigrationPolicy
from tests.coordinator.consumer.programs import CONFIG, Answer, CorePlayer, Step

NO_WAIT: Step = {"do": "wait", "ms": 0}  # the moments of the program have passed the time


class Program(NamedTuple):
    ids: dict[str, list[str]]  # of the topics, in the order in which each name was created
    steps: list[Step]
    moments: list[int]  # of the steps, in milliseconds since the beginning
    answers: list[Answer]
    settings: dict[str, str]  # Kafka's, besides those of `kafka_player.py`


def write(file: Path, programs: list[Program]) -> None:
    """A look that shows what the last one did is empty, another leaves out the members that it shows as the last one did."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as out:
        for program in programs:
            answers = [program.answers[0]]
            for before, answer in zip([{}, *program.answers], program.answers[1:], strict=False):
                answers.append(shortened(before, answer))
            out.write(json.dumps({**program._asdict(), "answers": answers}, separators=(",", ":")) + "\n")


def read(file: Path) -> list[Program]:
    programs = [Program(**{"settings": {}, **json.loads(line)}) for line in file.read_text().splitlines()]
    for program in programs:
        for number, answer in enumerate(program.answers):
            if program.steps[number]["do"] == "look" and not answer:
                program.answers[number] = program.answers[number - 2]
            elif "same" in answer:
                same = {name: program.answers[number - 2]["members"][name] for name in answer.pop("same")}
                answer["members"] = dict(sorted({**answer["members"], **same}.items()))
    return programs


def shortened(before: Answer, answer: Answer) -> Answer:
    known, members = before.get("members", {}), answer.get("members", {})
    if "listed" not in answer or not members:
        return answer
    if answer == before:
        return {}
    same = [name for name, shown in members.items() if known.get(name) == shown]
    return {**answer, "members": {name: shown for name, shown in members.items() if name not in same}, "same": same} if same else answer


def config_of(settings: dict[str, str]) -> GroupConfig:
    fields: dict[str, Any] = {}
    for name, value in settings.items():
        field = name.removeprefix("group.consumer.").replace(".", "_")
        if field in ConsumerConfig._fields:
            fields[field] = int(value) if value.isdecimal() else MigrationPolicy(value)
    return CONFIG._replace(consumer=CONFIG.consumer._replace(**fields))


def first_difference(program: Program) -> str | None:
    """Play the program to the core: the first step that it answers otherwise."""
    player = CorePlayer(config_of(program.settings), program.ids)
    for number, (step, moment, expected) in enumerate(zip(program.steps, program.moments, program.answers, strict=True)):
        player.wait(max(0, moment - player.moment))
        answer = player.play(step if step["do"] != "wait" else NO_WAIT)
        if answer != expected:
            return f"step {number}: {json.dumps(step)}\n  core  {differing(answer, expected)}\n  Kafka {differing(expected, answer)}"
    return None


def differing(answer: Answer, other: Answer) -> str:
    return json.dumps({name: value for name, value in answer.items() if name not in other or other[name] != value})
