"""`tenure group history`: what happened to a group, as a Tenure broker has noted it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from cli.client import EXIT, Cluster
from cli.groups import history_shown
from cli.groups.described import describe
from cli.groups.finding import absent
from cli.groups.history_reading import Notes
from cli.groups.history_shown import NOTHING_KNOWN, Partitions
from cli.groups.offsets_words import shown_moment
from cli.shown import Role, Screen, plain
from history.episodes import End, Moved, Rebalance, at_ms
from history.moves import moves, owners_of
from history.story import Story

if TYPE_CHECKING:
    from history import Entry, Owners
    from protocol.messages.consumer_offsets import GroupMetadataValue

# Read from before the time that is asked for: a rebalance that began then is told from its beginning, and who is new is known.
CONTEXT_MS = 1_800_000


class Teller:
    """Entries, with what they did to partitions: looked up when they are told, for most of a long story never are."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._images: dict[int, GroupMetadataValue | None] = {}
        self._before: dict[int, int] = {}  # by the offset of a rebalance's image: that of the one before it
        self._last = -1

    def follow(self, entry: Entry) -> None:
        """In order, told or not: each rebalance changes what the one before it has left."""
        if isinstance(entry, Rebalance) and entry.offset >= 0:
            self._before[entry.offset] = -2 if entry.from_generation == 0 else self._last
            self._last = entry.offset

    def partitions(self, entry: Entry) -> Partitions:
        if not isinstance(entry, Rebalance) or entry.offset not in self._before:
            return NOTHING_KNOWN
        before, after = self._owners(self._before[entry.offset]), self._owners(entry.offset)
        if before is None or after is None:
            return NOTHING_KNOWN
        image = self._image(entry.offset) if entry.end is End.STABLE else self._image(self._before[entry.offset])
        return Partitions(moves(before, after), len(before.keys() | after.keys()), (image.protocol if image else "") or "")

    def _owners(self, offset: int) -> Owners | None:
        if offset == -2:
            return {}  # the group was new
        image = self._image(offset)
        return owners_of(image) if image is not None else None

    def _image(self, offset: int) -> GroupMetadataValue | None:
        if offset < 0:
            return None
        if offset not in self._images:
            self._images[offset] = self._notes.image(offset)
        return self._images[offset]


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    with Cluster.of(options) as cluster:
        notes = Notes(cluster, options.group)
        notes.begin(None if options.since is None else options.since - CONTEXT_MS)
        teller = Teller(notes)
        story = Story(options.group)
        entries: list[Entry] = []
        for told in notes.read():
            entries += story.add(told)
        under_way = story.now_open
        if not options.follow:
            entries += story.finish()
        for entry in entries:
            teller.follow(entry)
        if not entries and under_way is None and describe(cluster, [options.group])[options.group] is None and not options.follow:
            raise absent(cluster, options.group)
        tell(screen, teller, entries, options)
        if options.follow:
            go_on(screen, teller, story, notes)
    return EXIT.DONE


def tell(screen: Screen, teller: Teller, entries: list[Entry], options: argparse.Namespace) -> None:
    about = concerning(entries)
    if options.since is not None:
        about = [entry for entry in about if last_ms(entry) >= options.since]
    chosen = about[-options.limit :] if options.limit else about
    if screen.json and options.follow:
        for entry in chosen:
            screen.json_line(history_shown.document(entry, teller.partitions(entry)))
    elif screen.json:
        screen.document({"group": options.group, "earlier": len(about) - len(chosen), "entries": documents(chosen, teller)})
    else:
        show(screen, teller, about, chosen, options)


def documents(chosen: list[Entry], teller: Teller) -> list[dict[str, object]]:
    return [history_shown.document(entry, teller.partitions(entry)) for entry in chosen]


def show(screen: Screen, teller: Teller, about: list[Entry], chosen: list[Entry], options: argparse.Namespace) -> None:
    if not chosen:
        since = f" since {shown_moment(options.since)}" if options.since is not None else ""
        screen.line(f"nothing is noted of group {plain(options.group)}{since}")
        return
    if len(about) > len(chosen):
        screen.line(screen.paint(f"{len(about) - len(chosen)} earlier entries are left out (--limit 0 shows all)", Role.DIM))
    for entry in chosen:
        history_shown.show(screen, entry, teller.partitions(entry))
    if not options.follow:
        lines = history_shown.summary(about)
        if lines:
            screen.line()
        for line in lines:
            screen.line(plain(line))


def concerning(entries: list[Entry]) -> list[Entry]:
    """What was told of the coordinator before the group was there says nothing of the group."""
    first = next((at for at, entry in enumerate(entries) if not isinstance(entry, Moved)), len(entries))
    return entries[first:]


def last_ms(entry: Entry) -> int:
    if isinstance(entry, Rebalance):
        return max(entry.began_ms, entry.ended_ms)
    return at_ms(entry)


def go_on(screen: Screen, teller: Teller, story: Story, notes: Notes) -> None:
    """Until somebody interrupts."""
    said: Rebalance | None = None
    while True:
        for told in notes.wait():
            for entry in story.add(told):
                teller.follow(entry)
                tell_one(screen, entry, teller.partitions)
        opened = story.now_open
        if opened is not None and opened is not said:
            said = opened
            if not screen.json:
                history_shown.show_begun(screen, opened)
        screen.out.flush()


def tell_one(screen: Screen, entry: Entry, partitions: Callable[[Entry], Partitions]) -> None:
    if screen.json:
        screen.json_line(history_shown.document(entry, partitions(entry)))
    else:
        history_shown.show(screen, entry, partitions(entry))
