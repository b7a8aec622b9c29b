"""Random programs in which clients of both protocols share a group, and processes come back with the other protocol."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tests.coordinator.consumer.generating import Client, Generator
from tests.coordinator.consumer.programs import Answer, Step

OUT, NEEDS_ID, PARKED, JOINED, IN, REJOINS = "out", "needs id", "parked", "joined", "in", "rejoins"
EAGER: Sequence[str] = ("range",)
COOPERATIVE: Sequence[str] = ("cooperative-sticky", "range")


class MixedClient(Client):
    """A client whose process may end and come back with the other protocol, under a new name. `phase`: of a classic one."""

    def __init__(self, base: str, instance: str | None, classic: bool, cooperative: bool) -> None:
        super().__init__(base, instance)
        self.base = base
        self.processes = 0
        self.cooperative = cooperative
        self.start(classic)

    def start(self, classic: bool) -> None:
        self.processes += 1
        self.member = f"{self.base}{self.processes}"
        self.classic = classic
        self.phase = OUT
        self.epoch = self.epoch_before = 0
        self.owned = {}
        self.joined = False
        self.members: list[str] = []  # of the leader's reply
        self.protocol = "range"


class MixedGenerator(Generator):
    def __init__(self, random: Random, prefix: str, *, regexes: bool = False, waits: bool = False, classic: float = 0.5) -> None:
        super().__init__(random, prefix, regexes=regexes, waits=waits)
        self.mixed = [MixedClient(client.member, client.instance, random.random() < classic, random.random() < 0.6) for client in self.clients]
        self.clients = list(self.mixed)

    def choose(self) -> Step:
        random = self.random
        if not self.topics or random.random() < 0.08:
            return super().choose()
        client = random.choice(self.mixed)
        if random.random() < 0.06:
            return self._restart(client)
        if not client.classic:
            if not client.joined:
                return self.join(client)
            return self._odd(client) if random.random() < 0.1 else self._beat(client)
        if random.random() < 0.08 and client.phase not in (OUT, PARKED):  # a second request of a member that waits is answered otherwise than by Kafka
            return self._odd_classic(client)
        return self._next(client)

    def _restart(self, client: MixedClient) -> Step:
        """The process ends, politely or not; the next one has the other protocol, mostly."""
        random = self.random
        name, instance = client.member, client.instance
        active = client.joined or client.phase not in (OUT, NEEDS_ID)
        classic = client.classic
        client.start(not classic if random.random() < 0.8 else classic)
        if not active or (instance is not None and random.random() < 0.6):
            return {"do": "wait", "ms": 1}
        if classic:
            return {"do": "leave", "members": [[name, instance]]}
        step: Step = {"do": "beat", "member": name, "epoch": -1}
        if instance is not None:
            step |= {"instance": instance, "epoch": random.choice((-1, -2))}
        return step

    def _next(self, client: MixedClient) -> Step:
        """What a classic client does next."""
        match client.phase:
            case "out":
                client.topics = self._some_topics()
                return self._classic_join(client, True)
            case "needs id" | "rejoins":
                return self._classic_join(client, False)
            case "joined":
                return self._sync(client)
            case "parked":
                other = self.random.choice(self.mixed)
                if other is not client and other.classic and other.phase not in (PARKED, OUT):
                    return self._next(other)
                return {"do": "wait", "ms": 1}
            case _:
                return {"do": "classic_beat", "member": client.member, "epoch": client.epoch, **self._instance(client)}

    def _instance(self, client: MixedClient) -> Step:
        return {} if client.instance is None else {"instance": client.instance}

    def _classic_join(self, client: MixedClient, new: bool) -> Step:
        if not client.cooperative:
            client.owned = {}
        step: Step = {"do": "classic_join", "name": client.member, "topics": client.topics, **self._instance(client)}
        if new:
            step["new"] = True
        if client.cooperative:
            step |= {"protocols": COOPERATIVE, "owned": client.owned}
        if self.random.random() < 0.1:
            step["sv"] = self.random.choice((0, 2, 3))
        if step.get("sv") == 3 and self.random.random() < 0.5:
            step["rack"] = "r"
        return step

    def _sync(self, client: MixedClient) -> Step:
        step: Step = {"do": "classic_sync", "name": client.member, "generation": client.epoch, "protocol": client.protocol, **self._instance(client)}
        if client.members:
            given: dict[str, dict[str, list[int]]] = {name: {} for name in client.members}
            for topic, count in self.topics.items():
                for number in range(count):
                    given[client.members[number % len(client.members)]].setdefault(topic, []).append(number)
            step["assignments"] = given
            if self.random.random() < 0.03:
                step["user_data"] = True
        return step

    def _odd_classic(self, client: MixedClient) -> Step:
        random = self.random
        match random.randrange(12):
            case 0:
                client.topics = self._some_topics()
                return self._classic_join(client, False)
            case 1:
                return self._classic_join(client, False)
            case 2:
                return {"do": "classic_beat", "member": client.member, "epoch": client.epoch + random.choice((1, -1)), **self._instance(client)}
            case 3:
                return {"do": "classic_beat", "member": client.member, "epoch": client.epoch, "instance": random.choice(("ia", "ib", "nobody"))}
            case 4:
                return self._sync(client) | random.choice(({"generation": client.epoch + 1}, {"protocol": "other"}, {"type": "connect"}, {"instance": "ia"}, {}))
            case 5:
                return self._classic_join(client, False) | random.choice(({"damaged": True}, {"type": "connect"}, {"protocols": ["other"]}, {"instance": "ib"}))
            case 6:
                client.phase = OUT
                return {"do": "leave", "members": [[client.member, None]]}
            case 7:  # a member of the one protocol speaks the other
                step = self._beat(client) | {"timeout": self.timeout, "topics": client.topics, "owned": client.owned}
                client.classic, client.joined = False, True
                return step
            case 8:
                return self._classic_join(client, False) | {"name": f"stranger{random.randrange(3)}"}
            case 9:
                return {"do": "commit", "member": client.member, "epoch": client.epoch + random.choice((0, 0, 1, -1)), "partitions": {next(iter(self.topics)): [0]}, "v": random.choice((8, 9))}
            case 10:
                return {"do": "fetch", "member": client.member, "epoch": client.epoch + random.choice((0, 1))}
            case _:
                other = random.choice(self.mixed)
                return {"do": "leave", "members": [[client.member, client.instance], [other.member, other.instance]]}

    # What clients hear.

    def learn(self, step: Step, answer: Answer) -> None:
        match step["do"]:
            case "classic_join" | "classic_sync":
                self._heard(step["name"], step["do"].removeprefix("classic_"), answer)
            case "classic_beat":
                client = self._named(step["member"])
                if client is not None and client.classic:
                    if answer["error"] in (27, 22):
                        client.phase = REJOINS
                    elif answer["error"]:
                        client.phase = OUT
            case "leave":
                for name, _ in step["members"]:
                    client = self._named(name)
                    if client is not None and client.classic:
                        client.phase = OUT
            case _:
                super().learn(step, answer)

    def hear(self, look: Answer) -> None:
        for name, kind, answer in look.get("arrived", []):
            self._heard(name, kind, answer)

    def _named(self, name: str) -> MixedClient | None:
        return next((client for client in self.mixed if client.member == name), None)

    def _heard(self, name: str, kind: str, answer: Answer) -> None:
        client = self._named(name)
        if client is None or not client.classic:
            return
        if "parked" in answer:
            client.phase = PARKED
        elif answer["error"]:
            client.phase = NEEDS_ID if answer["error"] == 79 else REJOINS if answer["error"] in (22, 27) else OUT
        elif kind == "join":
            client.phase, client.epoch_before, client.epoch = JOINED, client.epoch, answer["generation"]
            client.members = answer["members"] if answer["leader"] == name else []
            client.protocol = answer["protocol"]
        else:
            given = answer["assigned"] or {}
            lost = any(number not in given.get(topic, []) for topic, numbers in client.owned.items() for number in numbers)
            client.owned = given
            client.phase = REJOINS if lost and client.cooperative else IN
