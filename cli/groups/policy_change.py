"""`tenure group policy set` and `unset`, and `tenure group rebalance`: change the policies of a group."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from cli.client import Cluster, Exit, Failure, check, failure
from cli.groups.described import describe
from cli.groups.policies import GROUP_RESOURCE, policies_of, unsupported_policies
from cli.groups.policy_effects import effects
from cli.shown import Screen, plain
from coordinator.policies.door import POLICIES, SETTABLE
from coordinator.policies.names import expand_names, join_names, repeated_names, without_repeats
from coordinator.policies.rebalance_request import REBALANCE_REQUEST
from coordinator.policies.roster import INSTANCE_IDS
from protocol.errors import ErrorCode
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest

if TYPE_CHECKING:
    from cli.groups.policies import GroupPolicies

SET, DELETE, APPEND, SUBTRACT = range(4)
NOTHING_CHANGED: Final = "nothing was changed"


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    with Cluster.of(options) as cluster:
        before = policies_of(cluster, options.group)
        changes, remarks = requested_changes(options, before)
        if not changes:
            return print_result(screen, options, before, [], remarks or [f"{plain(options.group)}: every policy has this value already"])
        send(cluster, options.group, changes, dry_run=True)  # let the broker refuse invalid changes before the user is asked
        group = describe(cluster, [options.group])[options.group]
        requested = any(change.name == REBALANCE_REQUEST.name and change.config_operation == SET for change in changes)
        predicted_effects = effects(group, before.effective, policies_after(before, changes), before.status, requested)
        if options.dry_run:
            return print_result(screen, options, before, changes, [*predicted_effects, *remarks, "dry run: " + NOTHING_CHANGED])
        question = "".join(f"{plain(line)}\n" for line in predicted_effects) + plain(f"Change the policies of group {options.group}?")
        if not screen.confirm(question, options):
            raise Failure(Exit.REFUSED, NOTHING_CHANGED)
        send(cluster, options.group, changes, dry_run=False)
        after = policies_of(cluster, options.group)
    if hasattr(options, "reason"):
        return print_result(screen, options, after, changes, [plain(f"group {options.group} rebalances: {options.reason}")])
    return print_result(screen, options, after, changes, [*(plain(f"group {options.group}: {change_text(change)}") for change in changes), *remarks])


def requested_changes(options: argparse.Namespace, before: GroupPolicies) -> tuple[list[AlterableConfig], list[str]]:
    """The changes that the command line requests, without those that would have no effect, and remarks for the user."""
    if hasattr(options, "reason"):
        return [AlterableConfig(REBALANCE_REQUEST.name, SET, options.reason)], []
    if options.policy_action == "unset":
        if bool(options.names) == bool(options.all):
            raise Failure(Exit.USAGE, "name the policies to unset, or --all of them")
        return unset(list(before.own) if options.all else list(dict.fromkeys(options.names)), before)
    names = [name for name, _ in options.settings]
    by_instances = bool(options.add_instances) + bool(options.remove_instances)
    if not names and not by_instances:
        raise Failure(Exit.USAGE, "name what to set: NAME=VALUE, --add-instances or --remove-instances (see tenure group policy set --help)")
    if len(set(names)) < len(names) or by_instances > 1 or (by_instances and INSTANCE_IDS.name in names):
        raise Failure(Exit.USAGE, "each policy can be changed once in one command")
    settings, remarks = with_names_once(options.settings, before)
    changes = [AlterableConfig(name, SET, value) for name, value in settings if name == REBALANCE_REQUEST.name or before.own.get(name) != value]
    if not by_instances:
        return changes, remarks if changes else []
    changed, remarks_on_instances = changed_instances(options.add_instances or options.remove_instances, APPEND if options.add_instances else SUBTRACT, before)
    return [*changes, *changed], [*remarks, *remarks_on_instances]


def with_names_once(settings: list[tuple[str, str]], before: GroupPolicies) -> tuple[list[tuple[str, str]], list[str]]:
    """The settings with each name of instance.ids once, as the broker stores it, and a remark about names that were repeated."""
    changed: list[tuple[str, str]] = []
    remarks: list[str] = []
    for name, value in settings:
        try:
            repeated = repeated_names(value, INSTANCE_IDS.name) if name == INSTANCE_IDS.name else []
        except ValueError:  # send invalid names: the broker refuses them with a message
            repeated = []
        if repeated:
            value = without_repeats(value, INSTANCE_IDS.name)
            remarks.append(plain(f"group {before.group}: more than once in {INSTANCE_IDS.name}, and stored once: {join_names(repeated)}"))
        changed.append((name, value))
    return changed, remarks


def unset(names: list[str], before: GroupPolicies) -> tuple[list[AlterableConfig], list[str]]:
    if not names:
        return [], [plain(f"group {before.group} has no policies")]
    for name in names:
        if name not in POLICIES and name not in before.own:
            raise unknown_policy(before.group, name)
    remarks = [plain(f"group {before.group}: {name} is not set") for name in names if name not in before.own]
    return [AlterableConfig(name, DELETE, None) for name in names if name in before.own], remarks


def changed_instances(text: str, operation: int, before: GroupPolicies) -> tuple[list[AlterableConfig], list[str]]:
    try:
        names = expand_names(text, INSTANCE_IDS.name)
    except ValueError:  # send invalid names: the broker refuses them with a message
        return [AlterableConfig(INSTANCE_IDS.name, operation, text)], []
    present = frozenset(expand_names(before.own.get(INSTANCE_IDS.name, ""), INSTANCE_IDS.name))
    text = without_repeats(text, INSTANCE_IDS.name)
    useless = [name for name in names if (name in present) == (operation == APPEND)]
    if not useless:
        return [AlterableConfig(INSTANCE_IDS.name, operation, text)], []
    remark = plain(f"group {before.group}: {'already' if operation == APPEND else 'not'} in {INSTANCE_IDS.name}: {join_names(useless)}")
    useful = [name for name in names if (name in present) != (operation == APPEND)]
    return [AlterableConfig(INSTANCE_IDS.name, operation, join_names(useful))] if useful else [], [remark]


def send(cluster: Cluster, group: str, changes: list[AlterableConfig], *, dry_run: bool) -> None:
    reply = cluster.send_to_coordinator(group, IncrementalAlterConfigsRequest([AlterConfigsResource(GROUP_RESOURCE, group, changes)], dry_run))
    for result in reply.responses:
        if result.error_code:
            raise_if_unsupported(result.error_message)
            unknown = next((change.name for change in changes if change.name not in POLICIES), None)
            if unknown is not None and result.error_code == ErrorCode.INVALID_CONFIG:
                raise unknown_policy(group, unknown)
            check(result.error_code, f"group {group}", result.error_message)


def unknown_policy(group: str, name: str) -> Failure:
    """The failure for a policy that this command does not know, with the nearest one."""
    from difflib import get_close_matches

    nearest = get_close_matches(name, SETTABLE, 1, 0.75)
    suggestion = f"; did you mean {nearest[0]}?" if nearest else ""
    line = f"group {group}: there is no policy {plain(name)}{suggestion} (the policies of a group are {', '.join(SETTABLE)})"
    return failure(ErrorCode.INVALID_CONFIG, "").with_line(line)


def raise_if_unsupported(message: str | None) -> None:
    unsupported = unsupported_policies(message)
    if unsupported is not None:
        raise unsupported


def policies_after(before: GroupPolicies, changes: list[AlterableConfig]) -> dict[str, str]:
    """The policies after the changes, computed as the broker does."""
    after = dict(before.effective)
    for change in changes:
        value = change.value or ""
        match change.config_operation:
            case 0:
                after[change.name] = value
            case 1:
                after.pop(change.name, None)
            case operation:
                present = expand_names(after.get(INSTANCE_IDS.name, ""), INSTANCE_IDS.name)
                changed = expand_names(value, INSTANCE_IDS.name)
                names = [*present, *changed] if operation == APPEND else [name for name in present if name not in frozenset(changed)]
                after[INSTANCE_IDS.name] = join_names(list(dict.fromkeys(names)))
    return after


def change_text(change: AlterableConfig) -> str:
    match change.config_operation:
        case 0:
            return f"{change.name} is {change.value}"
        case 1:
            return f"{change.name} is unset"
        case 2:
            return f"added to {change.name}: {change.value}"
    return f"removed from {change.name}: {change.value}"


def print_result(screen: Screen, options: argparse.Namespace, policies: GroupPolicies, changes: list[AlterableConfig], lines: list[str]) -> int:
    if screen.json:
        operations = ("set", "unset", "add", "remove")
        changed = [{"name": change.name, "operation": operations[change.config_operation], "value": change.value} for change in changes]
        screen.document(policies.document() | {"dry_run": options.dry_run, "changes": changed, "messages": lines})
    else:
        for line in lines:
            screen.line(line)
    return Exit.DONE
