"""Generates sequences: several processes mostly behave like clients, and sometimes make mistakes that no client makes.

Steps are chosen while the sequence is played to Kafka, so that they can depend on the state of the group. Mistakes that were
made rarely so far in this state are preferred.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from tests.sequences.player import PARKED_S, REQUESTS_S, Player, playable
from tests.sequences.recipes import MISTAKEN_IDENTITIES, OTHER_MISTAKES, MistakeCounts
from tests.sequences.steps import KEYS, NOBODY, Step
from tests.sequences.wire import Versions

# Milliseconds: whole ticks plus a third of a tick (player.py). No two are equal, as events due in the same millisecond run in any order.
SESSIONS = (1600, 2800, 4000, 31_600, 31_600)
REBALANCES = (440, 1640, 1640, 2840, 61_640, 61_640)
OUT_OF_BOUNDS = (50, 1_800_001)
# No two names share a bucket of Java's hash map: in one bucket, the order of random ids would decide a tied vote.
PROTOCOL_NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky", "stream", "a", "b")
# No malformed subscriptions: Kafka fails to decode them when it completes the rebalance, and never answers the group.
METADATA = ("sub t0", "sub t0 t1", "sub", "raw 0000", "raw", "m", "m2")
TYPES = ("consumer", "consumer", "consumer", "connect")
OFFSETS = (["t0", 0], ["t0", 1], ["t1", 0], ["nope", 0], ["t0", 99])
COMMIT_METADATA = ("", "m", None, "x*4096", "x*4097", "\U0001f600*2048", "\U0001f600*2049")
INSTANCE_FROM = {"join": 5, "sync": 3, "beat": 3, "commit": 7}
UNMAPPED = "zz"


class Actor:
    __slots__ = ("client", "instance", "name", "protocols", "rebalance", "session", "version")

    def __init__(self, name: str, instance: str | None, protocols: list[list[str]], session: int, rebalance: int, version: int | None) -> None:
        self.name = name
        self.client: str | None = name
        self.instance = instance
        self.protocols = protocols
        self.session = session
        self.rebalance = rebalance
        self.version = version  # of its JoinGroups; None: a random one each time


class SequenceBuilder:
    """One sequence under construction."""

    def __init__(
        self,
        chance: Random,
        versions: Versions,
        recipes: MistakeCounts,
        ticks: int = 9,
        rebalances: tuple[int, ...] = REBALANCES,
        sessions: tuple[int, ...] = SESSIONS,
    ) -> None:
        self.rebalances = rebalances
        self.sessions = sessions
        self.chance = chance
        self.versions = versions
        self.recipes = recipes
        self.ticks_left = chance.randint(3, ticks)
        self.errant = chance.choice((0.1, 0.25, 0.25, 0.45))
        self.type = chance.choice(TYPES)
        self.actors = self._cast()
        self.burst = chance.randint(2, 9)

    def _cast(self) -> list[Actor]:
        chance = self.chance
        static = chance.choice((0.0, 0.5, 0.8, 1.0, 1.0))
        names = chance.sample(PROTOCOL_NAMES, chance.randint(1, 3))
        session, rebalance = chance.choice(self.sessions), chance.choice(self.rebalances)
        uniform = chance.random() < 0.5
        cast = []
        for number in range(1, chance.choice((1, 2, 2, 3, 3, 4)) + 1):
            instance = f"i{number}" if chance.random() < static else None
            if instance and chance.random() < 0.03:
                instance = ""
            if instance and chance.random() < 0.12:
                instance = "i1"  # two processes with the same instance id
            listed = chance.sample(names, len(names)) if chance.random() < 0.5 else list(names)
            if chance.random() < 0.15:
                listed = listed[: chance.randint(1, len(listed))]
            cast.append(
                Actor(
                    f"p{number}",
                    instance,
                    [[name, chance.choice(METADATA)] for name in listed],
                    session if uniform else chance.choice(self.sessions),
                    rebalance if uniform else chance.choice(self.rebalances),
                    chance.choice((None, None, 9, 9, 9, 5, 3)),
                )
            )
            if chance.random() < 0.05:
                cast[-1].client = chance.choice((None, ""))
        return cast

    def __call__(self, player: Player) -> Step | None:
        for _ in range(20):
            step = self._next(player)
            if step is None or (self._offered(step) and playable(step)):
                return step
        return {"do": "tick"}

    def _offered(self, step: Step) -> bool:
        return step["do"] not in KEYS or KEYS[step["do"]] in self.versions

    def _next(self, player: Player) -> Step | None:
        if self.ticks_left < 0:
            return None
        if self.burst <= 0 or player.spent > REQUESTS_S - 1.3 * PARKED_S:
            return self._tick()
        self.burst -= 1
        if self.chance.random() < self.errant:
            return self._mistake(player)
        return self._sensible(player) or self._tick()

    def _tick(self) -> Step | None:
        ticks = self.chance.choice((1, 1, 1, 1, 1, 2, 3))
        self.ticks_left -= ticks
        self.burst = self.chance.randint(1, 9)
        return {"do": "tick", "n": ticks} if self.ticks_left >= 0 else None

    # --- behaviour of clients ---

    def _sensible(self, player: Player) -> Step | None:
        chance = self.chance
        if chance.random() < 0.14:
            return chance.choice((self._fetch, self._commit_without_membership, self._admin, self._admin, self._drop_connections))(player)
        state = player.state()
        inside = {actor.name: actor for actor in self.actors if player.actor_state(actor.name).id() in player.members()}
        moves: list[Callable[[], Step]] = []
        for actor in self.actors:
            view = player.actor_state(actor.name)
            idle = "join" not in view.parked
            if actor.name not in inside:
                moves += [partial(self._join, player, actor, not view.pending)] * (2 if idle else 0)
                continue
            if state == "PreparingRebalance":
                moves += [partial(self._join, player, actor)] * (4 if idle else 0)
                moves.append(partial(self._beat, actor))
            elif state == "CompletingRebalance" and "sync" not in view.parked:
                moves += [partial(self._sync, player, actor)] * 4
                moves.append(partial(self._join, player, actor))
            elif state == "Stable":
                moves += [partial(self._beat, actor)] * 2
                moves += [partial(self._sync, player, actor), partial(self._commit, actor)]
                moves += [partial(self._join, player, actor)]
            if chance.random() < 0.3:
                moves.append(partial(self._leave, actor))
            if actor.instance is not None and chance.random() < 0.5:
                moves.append(partial(self._join, player, actor, True))
        return chance.choice(moves)() if moves else None

    def _version(self, do: str, instance: object = None, at_least: int = 0) -> int:
        low, high = self.versions.get(KEYS[do], (0, 0))
        low = max(low, at_least, INSTANCE_FROM.get(do, 0) if instance is not None else 0)
        return high if self.chance.random() < 0.4 else self.chance.randint(min(low, high), high)

    def _join(self, player: Player, actor: Actor, fresh: bool = False) -> Step:
        version = actor.version if actor.version is not None and (actor.instance is None or actor.version >= 5) else None
        if self.chance.random() < 0.15:
            self._change(actor)
        step: Step = {
            "do": "join",
            "by": actor.name,
            "v": self._version("join", actor.instance) if version is None else version,
            "member": "" if fresh else f"@{actor.name}",
            "type": self.type,
            "protocols": [list(protocol) for protocol in actor.protocols],
            "session": actor.session,
            "rebalance": actor.rebalance,
        }
        if actor.client != actor.name:
            step["client"] = actor.client
        if actor.instance is not None and not player.actor_state(actor.name).pending:
            step["instance"] = actor.instance
        return step

    def _change(self, actor: Actor) -> None:
        chance = self.chance
        if chance.random() < 0.5:
            actor.session, actor.rebalance = chance.choice(self.sessions), chance.choice(self.rebalances)
        else:
            chance.shuffle(actor.protocols)

    def _identity(self, actor: Actor, do: str) -> Step:
        step: Step = {"do": do, "by": actor.name, "v": self._version(do, actor.instance), "member": f"@{actor.name}"}
        if actor.instance is not None and self.chance.random() < 0.93:
            step["instance"] = actor.instance
        else:
            step["v"] = self._version(do)
        return step | {"generation": f"@{actor.name}"}

    def _beat(self, actor: Actor) -> Step:
        return self._identity(actor, "beat")

    def _sync(self, player: Player, actor: Actor) -> Step:
        step = self._identity(actor, "sync")
        if step["v"] >= 5:
            step |= {"type": f"@{actor.name}", "protocol": f"@{actor.name}"}
        if player.actor_state(actor.name).leads:
            choices: list[Any] = ["all"] * 6 + [[], [[f"@{actor.name}", "mine"]], [[f"@{actor.name}", "x"], [NOBODY, "y"]]]
            step["assign"] = self.chance.choice(choices)
        return step

    def _leave(self, actor: Actor) -> Step:
        low, high = self.versions.get(KEYS["leave"], (0, 0))
        version = self.chance.randint(low, high)
        if actor.instance is not None and version >= 3:
            entry = self.chance.choice(([f"@{actor.name}", actor.instance], ["", actor.instance], [f"@{actor.name}", None]))
        else:
            entry = [f"@{actor.name}", None]
        return {"do": "leave", "by": actor.name, "v": version, "members": [entry]}

    def _offsets(self, count: int = 3) -> list[Any]:
        offsets = OFFSETS[:3] if self.chance.random() < 0.8 else OFFSETS
        offsets_asked = self.chance.sample(offsets, self.chance.randint(1, count))
        metadata = self.chance.choice(COMMIT_METADATA) if self.chance.random() < 0.2 else "m"
        return [[*offset, self.chance.choice((0, 1, 42, 2**40, -1)), self.chance.choice((-1, 3)), metadata] for offset in offsets_asked]

    def _commit(self, actor: Actor) -> Step:
        return self._identity(actor, "commit") | {"offsets": self._offsets()}

    def _commit_without_membership(self, player: Player) -> Step:
        """A commit without a member id and generation, as tools send it."""
        group = self.chance.choice(("g", "h", "h"))
        step = {"do": "commit", "by": self._any_actor().name, "v": self._version("commit"), "group": group, "member": "", "generation": -1}
        return step | {"offsets": self._offsets()}

    def _fetch(self, player: Player) -> Step:
        chance = self.chance
        version = self._version("fetch")
        topics = chance.choice((None, [["t0", [0, 1]]], [["t1", [0]], ["nope", [0]]], []))
        groups: list[Any] = [["g", topics]]
        if version >= 8 and chance.random() < 0.5:
            several: list[list[Any]] = [[["h", None], ["g", topics]], [], [["g", None], ["missing", None], ["h", topics]]]
            groups = chance.choice(several)
        if version < 2 and topics is None:
            groups = [["g", [["t0", [0]]]]]
        return {"do": "fetch", "by": self._any_actor().name, "v": version, "groups": groups, "stable": chance.random() < 0.5}

    def _admin(self, player: Player) -> Step:
        chance = self.chance
        by = self._any_actor().name
        do = chance.choice(("describe", "list", "delete", "forget", "forget", "find", "leave"))
        step: Step = {"do": do, "by": by, "v": self._version(do)}
        if do == "describe":
            return step | {"groups": chance.choice((["g"], ["g", "h", "missing"], ["missing"], [], ["g", "g"])), "operations": chance.random() < 0.5}
        if do == "list":
            states = chance.choice(([], ["Stable"], ["stable", " EMPTY "], ["PreparingRebalance", "CompletingRebalance"], ["Dead"], ["what"]))
            return step | {"states": states, "types": chance.choice(([], ["classic"], ["Classic", "consumer"], ["consumer"], ["what"]))}
        if do == "delete":
            return step | {"groups": chance.choice((["g"], ["h"], ["g", "h"], ["missing", "h"], ["h", "h"], []))}
        if do == "forget":
            offsets = [list(offset) for offset in chance.sample(OFFSETS, chance.randint(1, 3))]
            return step | {"offsets": chance.choice((offsets, offsets, [])), "group": chance.choice(("g", "g", "h"))}
        if do == "find":
            return step | {"keys": chance.choice((["g"], ["h"], ["g", "h", ""] if step["v"] >= 4 else ["g"])), "kind": chance.choice((0, 0, 0, 2, 9, -1))}
        statics = [actor.instance for actor in self.actors if actor.instance is not None] or [UNMAPPED]
        entries = [["", instance] for instance in chance.sample(statics, chance.randint(1, len(statics)))]
        return step | {"v": self._version("leave", at_least=3), "members": entries}

    def _drop_connections(self, player: Player) -> Step:
        return {"do": "drop", "by": self._any_actor().name}

    def _any_actor(self) -> Actor:
        return self.chance.choice(self.actors)

    # --- mistakes ---

    def _mistake(self, player: Player) -> Step:
        kinds = OTHER_MISTAKES if self.chance.random() < 0.4 else MISTAKEN_IDENTITIES
        do, member, instance, generation = self.recipes.rarest(self.chance, kinds, player.state())
        inside = [actor for actor in self.actors if player.actor_state(actor.name).id() in player.members()]
        actor = self.chance.choice(inside) if inside and self.chance.random() < 0.6 else self._any_actor()
        if member == "pending":
            actor = next((actor for actor in self.actors if player.actor_state(actor.name).pending), actor)
        if not instance:
            return self._wrong(player, actor, do, member)
        step = self._plain(player, actor, do)
        name = self._member(player, actor, member)
        instance_id = self._instance(actor, instance)
        if instance_id is not None:
            step["v"] = max(step["v"], INSTANCE_FROM.get(do, 3))
        if do == "leave":
            step["members"] = [[name, instance_id if step["v"] >= 3 else None]]
            return step
        step["member"] = name
        step.pop("instance", None)
        if instance_id is not None:
            step["instance"] = instance_id
        if do != "join":
            reference = f"@{actor.name}"
            step["generation"] = {"own": reference, "less": reference + "-1", "more": reference + "+1", "minus": -1, "zero": 0}[generation]
        return step

    def _plain(self, player: Player, actor: Actor, do: str) -> Step:
        if do == "join":
            return self._join(player, actor)
        if do == "sync":
            return self._sync(player, actor)
        return {"beat": self._beat, "leave": self._leave, "commit": self._commit}[do](actor)

    def _member(self, player: Player, actor: Actor, kind: str) -> str:
        if kind == "other":
            return f"@{self._any_actor().name}"
        return {"own": f"@{actor.name}", "stale": f"@{actor.name}-1", "nobody": NOBODY, "empty": ""}[kind]

    def _instance(self, actor: Actor, kind: str) -> str | None:
        if kind == "other":
            return self._any_actor().instance or "i1"
        return {"own": actor.instance, "none": None, "unmapped": UNMAPPED, "blank": ""}[kind]

    def _wrong(self, player: Player, actor: Actor, do: str, mistake: str) -> Step:
        state, chance = player.actor_state(actor.name), self.chance
        outside = state.id() not in player.members() and not state.pending
        step = self._join(player, actor, fresh=outside) if do == "join" else self._plain(player, actor, do)
        if mistake == "no group":
            step["group"] = ""
        elif mistake == "other group":
            step["group"] = "h"
        elif do == "join":
            step |= self._wrong_join(actor, step, mistake)
        elif do == "sync":
            step["v"] = self.versions.get(KEYS["sync"], (0, 0))[1]
            reference = f"@{actor.name}"
            wrong = {"type": "connect"} if mistake == "type" else {"protocol": "b"} if mistake == "name" else {}
            step |= {"type": reference, "protocol": reference} | wrong
            if mistake == "null":
                step[chance.choice(("type", "protocol"))] = None
            if mistake == "strangers":
                step["assign"] = [[NOBODY, "x"], [f"@{self._any_actor().name}", "y"]]
        elif do == "leave":
            step["v"] = self._version("leave", at_least=3)
            entries = [[f"@{actor.name}", chance.choice((actor.instance, None))] for actor in self.actors] + [["", actor.instance] for actor in self.actors]
            entries_asked = chance.sample(entries, chance.randint(1, min(4, len(entries))))
            step["members"] = {"nobody at all": [], "twice": [entries[0], entries[0]], "several": entries_asked, "batch": [[NOBODY, None], *entries_asked]}[mistake]
        elif mistake == "retention":
            step |= {"v": chance.randint(2, 4), "retention": chance.choice((0, 100_000, -2))}
            step.pop("instance", None)
        else:
            step["offsets"] = [] if mistake == "nothing" else [["nope", 0, 1, -1, "m"]]
        return step

    def _wrong_join(self, actor: Actor, step: Step, mistake: str) -> Step:
        names = list(step["protocols"])
        if mistake == "pending":
            return {"instance": UNMAPPED, "v": max(step["v"], INSTANCE_FROM["join"])}
        if mistake == "type":
            return {"type": self.chance.choice(("", *TYPES))}
        if mistake == "no protocols":
            return {"protocols": []}
        if mistake == "no common":
            return {"protocols": [["nobody-else", "m"]]}
        if mistake == "session":
            return {"session": self.chance.choice(OUT_OF_BOUNDS)}
        if mistake == "reordered":
            return {"protocols": names[::-1]}
        if mistake == "metadata":
            return {"protocols": [[name, "sub t2"] for name, _ in names]}
        more = [["extra", "m"], *names] if self.chance.random() < 0.5 else names[:1]
        return {"protocols": more}
