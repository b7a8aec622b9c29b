"""Records and batches as text, one line each; the members of a group record follow in indented lines."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from cli.logs.records import Decoded
from cli.shown import counted
from protocol.batch import BatchHeader

HEX_BYTES_SHOWN = 64
CHARACTERS_SHOWN = 1000


def time_text(ms: int) -> str:
    """The time in UTC, always with milliseconds, or the number itself outside of the calendar's range."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def shown(value: Any) -> str:
    """A value as text for one line: simple names without quotes, ambiguous text in quotes."""
    if value is None:
        return "-"
    if isinstance(value, str):
        if len(value) > CHARACTERS_SHOWN:
            return f"{shown(value[:CHARACTERS_SHOWN])}... ({len(value)} characters)"
        return value if value and value.isprintable() and not any(sign in value for sign in " \"'") else repr(value)
    if isinstance(value, dict):
        if "hex" in value:
            return hexadecimal(value["hex"])
        return "{" + fields_text(value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(shown, value)) + "]"
    return str(value)


def hexadecimal(digits: str) -> str:
    size = len(digits) // 2
    more = f"... ({size} bytes)" if size > HEX_BYTES_SHOWN else ""
    return f"0x{digits[: 2 * HEX_BYTES_SHOWN]}{more}"


def fields_text(fields: dict[str, Any]) -> str:
    return ", ".join(f"{name} {shown(value)}" for name, value in fields.items())


def batch_line(position: int, header: BatchHeader) -> str:
    flags = [name for name, is_set in (("transactional", header.is_transactional), ("control", header.is_control)) if is_set]
    producer = f"  producer {header.producer_id} epoch {header.producer_epoch} sequence {header.base_sequence}" if header.producer_id >= 0 else ""
    return (
        f"batch at byte {position}: {header.size} bytes, offsets {header.base_offset} to {header.last_offset}, {header.record_count} record{'' if header.record_count == 1 else 's'}, "
        f"epoch {header.leader_epoch}, {header.compression.name.lower()}, {time_text(header.max_timestamp)}{producer}{'  '.join(['', *flags])}"
    )


def batch_fields(position: int, header: BatchHeader) -> dict[str, Any]:
    return {
        "kind": "batch",
        "position": position,
        "size": header.size,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "leader_epoch": header.leader_epoch,
        "compression": header.compression.name.lower(),
        "timestamp_type": header.timestamp_type.name,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "crc": header.crc,
    }


def record_lines(offset: int, timestamp: int, decoded: Decoded) -> Iterator[str]:
    head, *below = _LINES.get(decoded.kind, _plain)(decoded)
    remark = f"  ({decoded.remark})" if decoded.remark else ""
    yield f"{offset}  {time_text(timestamp)}  {head}{remark}"
    yield from below


def _plain(decoded: Decoded) -> list[str]:
    value = decoded.value
    return [f"{decoded.kind} {shown(decoded.key)}: {'removed' if value is None else shown(value)}"]


def _offset(decoded: Decoded) -> list[str]:
    head = f"offset {shown(decoded.group)} {shown(decoded.topic)}-{decoded.key['partition']}: "
    value = decoded.value
    if not isinstance(value, dict) or "hex" in value:
        return [head + ("removed" if value is None else shown(value))]
    parts = [str(value["offset"]), f"committed {time_text(value['commit_timestamp'])}"]
    if value["leader_epoch"] >= 0:
        parts.append(f"epoch {value['leader_epoch']}")
    if value["metadata"]:
        parts.append(f"metadata {shown(value['metadata'])}")
    if value["expire_timestamp"] >= 0:
        parts.append(f"expires {time_text(value['expire_timestamp'])}")
    if value["topic_id"]:
        parts.append(f"topic id {value['topic_id']}")
    return [head + ", ".join(parts)]


def _group(decoded: Decoded) -> list[str]:
    head = f"group {shown(decoded.group)}: "
    value = decoded.value
    if not isinstance(value, dict) or "hex" in value:
        return [head + ("removed" if value is None else shown(value))]
    members = value["members"]
    parts = [f"generation {value['generation']}", f"{len(members)} member{'' if len(members) == 1 else 's'}"]
    parts += [f"{name} {shown(value[field])}" for name, field in (("type", "protocol_type"), ("protocol", "protocol"), ("leader", "leader")) if value[field]]
    if value["current_state_timestamp"] >= 0:
        parts.append(f"state since {time_text(value['current_state_timestamp'])}")
    return [head + ", ".join(parts), *(line for member in members for line in _member(member))]


def _member(member: dict[str, Any]) -> Iterator[str]:
    instance = f", instance {shown(member['group_instance_id'])}" if member["group_instance_id"] is not None else ""
    rebalance = f", rebalance timeout {member['rebalance_timeout']} ms" if member["rebalance_timeout"] >= 0 else ""
    yield (
        f"    member {shown(member['member_id'])}{instance}: client {shown(member['client_id'])} at {shown(member['client_host'])}, "
        f"session timeout {member['session_timeout']} ms{rebalance}"
    )
    yield f"        subscribes {_subscription(member['subscription'])}"
    yield f"        assigned {_assignment(member['assignment'])}"


def _subscription(value: Any) -> str:
    if not isinstance(value, dict) or "topics" not in value:
        return _embedded(value)
    parts = [", ".join(map(shown, value["topics"])) or "nothing"]
    if value["owned_partitions"]:
        parts.append(f"owns {_partitions(value['owned_partitions'])}")
    if value["generation_id"] >= 0:
        parts.append(f"of generation {value['generation_id']}")
    if value["rack_id"] is not None:
        parts.append(f"rack {shown(value['rack_id'])}")
    if value["user_data"]:
        parts.append(f"user data {shown(value['user_data'])}")
    return "; ".join(parts)


def _assignment(value: Any) -> str:
    if not isinstance(value, dict) or "assigned_partitions" not in value:
        return _embedded(value)
    user_data = f"; user data {shown(value['user_data'])}" if value["user_data"] else ""
    return (_partitions(value["assigned_partitions"]) or "nothing") + user_data


def _embedded(value: Any) -> str:
    """The text for member metadata of another protocol, or for unreadable metadata of a consumer."""
    if value is None or value == "":
        return "nothing"
    remark = f" ({value['remark']})" if isinstance(value, dict) and "remark" in value else ""
    return shown(value) + remark


def _partitions(topics: list[dict[str, Any]]) -> str:
    return ", ".join(f"{shown(topic['topic'])}: {ranges(topic['partitions'])}" for topic in topics if topic["partitions"])


def ranges(numbers: list[int]) -> str:
    """Numbers as ranges: `0-3 5`."""
    parts: list[tuple[int, int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1] = (parts[-1][0], number)
        else:
            parts.append((number, number))
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def _note(decoded: Decoded) -> list[str]:
    value = decoded.value
    about = f"note {shown(decoded.group)}" if decoded.group else "note of the coordinator"
    if not isinstance(value, dict) or "hex" in value:
        return [f"{about}: {'removed' if value is None else shown(value)}"]
    source = {name: value[name] for name in ("seq", "coordinator_epoch", "offsets_log_offset")}
    if value["dropped"]:
        source["dropped"] = value["dropped"]
    return [
        f"{about}: {value['kind']} at {time_text(value['ts'])}, generation {value['generation']}, state {value['state']}: "
        f"{fields_text(value['body'])}; {fields_text(source)}"
    ]


def _topic(decoded: Decoded) -> list[str]:
    value = decoded.value
    head = f"topic {shown(decoded.topic)}: "
    if not isinstance(value, dict) or "hex" in value:
        return [head + ("removed" if value is None else shown(value))]
    settings = "".join(f", {setting['name']}={shown(setting['value'])}" for setting in value["settings"])
    return [f"{head}{counted(value['partitions'], 'partition')}, id {value['topic_id']}, created {time_text(value['created_ms'])}{settings}"]


def _producer_ids(decoded: Decoded) -> list[str]:
    value = decoded.value
    readable = isinstance(value, dict) and "hex" not in value
    return [f"producer ids below {value['next_id']} are allocated" if readable else f"producer ids: {shown(value)}"]


def _deletion_number(decoded: Decoded) -> list[str]:
    return [f"deletions of topics are numbered up to {_field(decoded, 'last')}"]


def _deletions(decoded: Decoded) -> list[str]:
    return [f"the offsets of topics deleted up to number {_field(decoded, 'number')} are removed"]


def _field(decoded: Decoded, name: str) -> str:
    """A field of the value, or the value as it can be shown."""
    value = decoded.value
    return str(value[name]) if isinstance(value, dict) and name in value else shown(value)


def _deleted_topic(decoded: Decoded) -> list[str]:
    value, key = decoded.value, decoded.key
    head = f"deleted topic of id {key['topic_id'] if isinstance(key, dict) else shown(key)}: "
    if not isinstance(value, dict) or "hex" in value:
        return [head + ("its folders are renamed" if value is None else shown(value))]
    return [f"{head}{shown(value['name'])}, {counted(value['partitions'], 'partition')}, deleted {time_text(value['deleted_ms'])}"]


def _control(decoded: Decoded) -> list[str]:
    return [f"control {shown(decoded.key)}"]


def _record(decoded: Decoded) -> list[str]:
    value = decoded.value
    return [f"{shown(decoded.key)} = {'null' if value is None else shown(value)}"]


_LINES = {
    "offset": _offset,
    "group": _group,
    "note": _note,
    "topic": _topic,
    "producer-ids": _producer_ids,
    "deleted-topic": _deleted_topic,
    "deletion-number": _deletion_number,
    "deletions": _deletions,
    "control": _control,
    "record": _record,
}
