"""Random programs: a few members that mostly behave, and sometimes do not, while topics come and go.

The next step depends on the answers to those before, so that clients go on from the epochs and partitions they were given.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.coordinator.consumer.programs import Answer, Player, Step
from tests.coordinator.consumer.recorded import Program

TIMEOUT = 60_000
ALL_RANGE = False


class Client:
    """What a client knows: its member id, what it asked for, and what it was last told."""

    def __init__(self, member: str, instance: str | None) -> None:
        self.member = member
        self.instance = instance
        self.epoch = 0
        self.epoch_before = 0
        self.owned: dict[str, list[int]] = {}
        self.topics: list[str] = []
        self.joined = False


class Generator:
    """Chooses the steps of one program. `prefix` begins the names of its topics; `regexes`: members subscribe by expression too."""

    def __init__(self, random: Random, prefix: str, *, regexes: bool = False, static: float = 0.3, waits: bool = False) -> None:
        self.random = random
        self.prefix = prefix
        self.regexes = regexes
        self.waits = waits
        self.clients = [Client(name, f"i{name}" if random.random() < static else None) for name in ("a", "b", "c", "d")[: random.choice((2, 3, 4))]]
        self.topics: dict[str, int] = {}
        self.timeout = 1_500 if waits else TIMEOUT

    def choose(self) -> Step:
        random = self.random
        if not self.topics:
            return self._topic()
        if random.random() < 0.08:
            return self._topic()
        if random.random() < 0.03:
            return {"do": "drop", "name": random.choice(list(self.topics))}
        if self.waits and random.random() < 0.08:
            return {"do": "wait", "ms": 1_000}
        if random.random() < 0.1:
            return self._offsets()
        client = random.choice(self.clients)
        if not client.joined:
            return self.join(client)
        if random.random() < 0.2:
            return self._odd(client)
        return self._beat(client)

    def _topic(self) -> Step:
        random = self.random
        name = f"{self.prefix}{random.choice('xyz')}"
        return {"do": "topic", "name": name, "partitions": self.topics.get(name, 0) + random.choice((1, 2, 3))}

    def _some_topics(self) -> list[str]:
        return sorted({f"{self.prefix}{self.random.choice('xyz')}" for _ in range(self.random.choice((1, 1, 2, 3)))})

    def join(self, client: Client) -> Step:
        random = self.random
        client.topics = self._some_topics()
        step: Step = {"do": "beat", "member": client.member, "epoch": 0, "timeout": self.timeout, "topics": client.topics, "owned": {}}
        if client.instance is not None:
            step["instance"] = client.instance
        if random.random() < (1 if ALL_RANGE else 0.15):
            step["assignor"] = "range"
        if random.random() < 0.1:
            step["rack"] = random.choice("rs")
        if self.regexes and random.random() < 0.5:
            step["regex"] = self._expression()
            if random.random() < 0.7:
                step["topics"] = random.choice(([], None))
                if step["topics"] is None:
                    del step["topics"]
        return step

    def _expression(self) -> str:
        return self.prefix + self.random.choice((".*", "[xy]", "z", "nothing", "(x|z)"))

    def _beat(self, client: Client) -> Step:
        """The usual: what it owns, or nothing new."""
        step: Step = {"do": "beat", "member": client.member, "epoch": client.epoch}
        if client.instance is not None:
            step["instance"] = client.instance
        if self.random.random() < 0.7:
            step["owned"] = client.owned
        if self.random.random() < 0.2:
            step |= {"timeout": self.timeout, "topics": client.topics}
        return step

    def _odd(self, client: Client) -> Step:
        random = self.random
        step = self._beat(client)
        match random.randrange(13):
            case 0:
                client.topics = self._some_topics() if random.random() < 0.8 else []
                step["topics"] = client.topics
            case 1:
                step["epoch"] = -1
            case 2:
                step["epoch"] = -2
            case 3:
                step["epoch"] = client.epoch_before
                step["owned"] = random.choice((client.owned, {}, None))
            case 4:
                step["epoch"] = client.epoch + random.choice((1, -1, 5))
            case 5:
                step["member"] = random.choice([other.member for other in self.clients] + ["stranger"])
            case 6:
                step |= {"instance": random.choice(["ia", "ib", "nobody"])}
            case 7 | 8:
                step = self.join(client)
                if random.random() < 0.5:
                    step["member"] = client.member + "'" if client.instance is not None else client.member
            case 9:
                step["owned"] = {name: list(range(random.choice((0, 1, count)))) for name, count in self.topics.items()}
            case 10:
                step["assignor"] = random.choice(("range", "unknown"))
            case 11:
                if self.regexes:
                    step["regex"] = random.choice((self._expression(), "", "("))
                else:
                    step |= random.choice(({"timeout": self.timeout}, {"rack": "r"}, {"rack": ""}, {"instance": ""}))
            case 12:
                return {"do": "leave", "members": [random.choice(([client.member, None], ["", client.instance or "nobody"], ["stranger", None]))]}
        return {name: value for name, value in step.items() if value is not None}

    def _offsets(self) -> Step:
        random = self.random
        client = random.choice(self.clients)
        owned = {name: each for name, each in client.owned.items() if name in self.topics}
        partitions = owned if random.random() < 0.6 and owned else {name: [0] for name in list(self.topics)[:1]}
        match random.randrange(8):
            case 0 | 1 | 2:
                epoch = random.choice((client.epoch, client.epoch, client.epoch_before, client.epoch + 1, -1))
                return {"do": "commit", "member": client.member, "epoch": epoch, "partitions": partitions, "v": random.choice((8, 9, 9, 9))}
            case 3:
                return {"do": "commit", "member": "", "epoch": -1, "partitions": partitions}
            case 4:
                return {"do": "fetch", "member": client.member, "epoch": random.choice((client.epoch, client.epoch_before, client.epoch + 1))}
            case 5:
                return {"do": "delete_offsets", "partitions": {name: [0] for name in self.topics}}
            case 6:
                return {"do": "delete"}
            case _:
                return {"do": "classic_beat", "member": client.member, "epoch": client.epoch}

    def learn(self, step: Step, answer: Answer) -> None:
        if step["do"] == "topic":
            self.topics[step["name"]] = step["partitions"]
        elif step["do"] == "drop":
            del self.topics[step["name"]]
        elif step["do"] == "beat":
            self._learn_beat(step, answer)

    def hear(self, look: Answer) -> None:
        """What a look shows besides: answers that were parked."""

    def _learn_beat(self, step: Step, answer: Answer) -> None:
        client = next((client for client in self.clients if client.member == step["member"]), None)
        if client is None and step["member"].endswith("'") and not answer["error"]:
            client = next(client for client in self.clients if client.member == step["member"].rstrip("'") or client.member + "'" == step["member"])
            client.member = step["member"]
        if client is None:
            return
        if answer["error"] in (25, 110) or (not answer["error"] and step["epoch"] < 0):
            client.joined, client.owned = False, {}
        elif not answer["error"]:
            client.joined = True
            client.epoch_before, client.epoch = client.epoch, answer["epoch"]
            if answer["assigned"] is not None:
                client.owned = answer["assigned"]


def generate(generator: Generator, player: Player, length: int, after: Callable[[], None] | None = None) -> Program:
    """Play a program of this length, with a look after each step."""
    steps: list[Step] = []
    answers: list[Answer] = []
    moments: list[int] = []
    while len(steps) < 2 * length:
        chosen = generator.choose()
        for step in (chosen, {"do": "look"}):
            steps.append(step)
            moments.append(player.moment)
            answers.append(player.play(step))
        generator.learn(chosen, answers[-2])
        generator.hear(answers[-1])
        if after is not None:
            after()
    return Program({}, steps, moments, answers, {})
