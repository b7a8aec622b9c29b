"""Advice for one group with other options, and a replay of its history with other settings, from the tables."""

from __future__ import annotations

from typing import NamedTuple

from pipeline.advice import AdviceTables, advise
from pipeline.groups import in_newer_protocol
from pipeline.restarts import Restarts
from pipeline.rows import TABLES, Episode, Generation, GroupTables, Member, MemberSpell, NewerGroup, NoteRow, Replaced
from pipeline.schema import rows_of
from pipeline.tables import Published, Tables
from pipeline.timeouts import Options
from pipeline.whatif import Script


class Replay(NamedTuple):
    cluster: str
    group: str
    static: bool
    session_timeout_ms: int | None
    happened: int  # rebalances in the logs
    as_it_was: int  # rebalances in the replay with the real settings
    as_asked: int  # rebalances in the replay with the requested settings

    @property
    def saved(self) -> int:
        return self.as_it_was - self.as_asked


def clusters_of(tables: Tables, group: str, cluster: str | None = None) -> list[str]:
    """The clusters that have the group; with `cluster`, at most this one."""
    clusters = set(tables.read("groups", only={"group": group})["cluster"].to_pylist())
    return sorted(clusters if cluster is None else clusters & {cluster})


def tables_of(tables: Tables, published: Published, cluster: str, group: str) -> GroupTables:
    def rows(name: str, row: type[tuple[object, ...]]) -> list[tuple[object, ...]]:
        assert TABLES[name].row is row
        return rows_of(row, tables.read(name, only={"cluster": cluster, "group": group}, published=published))

    return GroupTables(
        rows("generations", Generation),  # type: ignore[arg-type]
        rows("members", Member),  # type: ignore[arg-type]
        rows("newer_groups", NewerGroup),  # type: ignore[arg-type]
        rows("notes", NoteRow),  # type: ignore[arg-type]
        rows("member_spells", MemberSpell),  # type: ignore[arg-type]
        rows("replacements", Replaced),  # type: ignore[arg-type]
        rows("rebalances", Episode),  # type: ignore[arg-type]
    )


def advice_for(tables: Tables, group: str, options: Options, cluster: str | None = None) -> list[AdviceTables]:
    """The advice for the group, for each cluster that has it or only this one."""
    published = tables.published()
    return [advise(name, group, tables_of(tables, published, name, group), published.now_ms[name], options) for name in clusters_of(tables, group, cluster)]


def replay(tables: Tables, group: str, *, static: bool, session_timeout_ms: int | None, cluster: str | None = None) -> list[Replay]:
    """A replay for each cluster that has the group, except where it uses a newer protocol."""
    published = tables.published()
    replays = []
    for name in clusters_of(tables, group, cluster):
        of_group = tables_of(tables, published, name, group)
        if in_newer_protocol(of_group.generations, of_group.newer):
            continue
        script = Script(group, Restarts(of_group, published.now_ms[name]), of_group.episodes, Options().heartbeat_ms)
        timeout = session_timeout_ms or max((spell.session_timeout_ms or 0 for spell in of_group.spells), default=0) or 45_000
        real = script.as_it_was().rebalances
        requested = script.as_static(timeout).rebalances if static else real
        happened = sum(1 for episode in of_group.episodes if not episode.missing)
        replays.append(Replay(name, group, static, timeout if static else None, happened, real, requested))
    return replays
