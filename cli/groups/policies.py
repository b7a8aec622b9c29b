"""Policies of groups (Tenure's settings of a group), as DescribeConfigs and ListConfigResources report them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from cli.client import Exit, Failure, check, failure
from cli.groups.policy_status import status_document
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResult
from protocol.messages.list_config_resources import ListConfigResourcesRequest

if TYPE_CHECKING:
    from cli.client import Cluster
    from cli.groups.described import Group

GROUP_RESOURCE: Final = 32  # the resource type
OWN, BROKER = 8, 4  # config sources: the value was set for the group itself, or is the broker's
BY_TYPE_VERSION: Final = 1  # of ListConfigResources
STATUS_PREFIX: Final = "status."
KAFKA_PREFIXES: Final = ("consumer.", "share.", "streams.")  # prefixes of Kafka's group configs


class Policy(NamedTuple):
    name: str
    value: str
    source: int

    @property
    def is_own(self) -> bool:
        return self.source == OWN


class GroupPolicies(NamedTuple):
    """The policies that apply to a group, and their current status, by name without the prefix "status."."""

    group: str
    policies: tuple[Policy, ...]
    status: dict[str, str]

    @property
    def own(self) -> dict[str, str]:
        return {policy.name: policy.value for policy in self.policies if policy.is_own}

    @property
    def effective(self) -> dict[str, str]:
        return {policy.name: policy.value for policy in self.policies}

    def document(self) -> dict[str, object]:
        sources = {OWN: "group", BROKER: "broker"}
        policies = [{"name": policy.name, "value": policy.value, "source": sources.get(policy.source, "default")} for policy in self.policies]
        return {"group": self.group, "policies": policies, "status": status_document(self.status)}


def policies_of(cluster: Cluster, group: str) -> GroupPolicies:
    reply = cluster.send_to_coordinator(group, DescribeConfigsRequest([DescribeConfigsResource(GROUP_RESOURCE, group, None)]))
    (result,) = reply.results
    check(result.error_code, f"group {group}", result.error_message)
    return _group_policies(result)


def _group_policies(result: DescribeConfigsResult) -> GroupPolicies:
    settings = [config for config in result.configs if not config.name.startswith(KAFKA_PREFIXES)]
    status = {setting.name.removeprefix(STATUS_PREFIX): setting.value or "" for setting in settings if setting.name.startswith(STATUS_PREFIX)}
    policies = [Policy(setting.name, setting.value or "", setting.config_source) for setting in settings if not setting.name.startswith(STATUS_PREFIX)]
    return GroupPolicies(result.resource_name, tuple(policies), status)


def statuses_of(cluster: Cluster, groups: Collection[Group]) -> dict[str, dict[str, str]]:
    """The current status of each group's policies; empty if the cluster does not report it."""
    by_broker: dict[int, list[str]] = {}
    for group in groups:
        by_broker.setdefault(group.coordinator, []).append(group.id)
    statuses: dict[str, dict[str, str]] = {}
    for broker_id, names in by_broker.items():
        if cluster.version(ListConfigResourcesRequest.API_KEY, broker_id) < BY_TYPE_VERSION:
            continue  # an older Apache Kafka, without settings of groups
        reply = cluster.send_to_broker(broker_id, DescribeConfigsRequest([DescribeConfigsResource(GROUP_RESOURCE, name, None) for name in names]))
        statuses |= {result.resource_name: _group_policies(result).status for result in reply.results if not result.error_code}
    return {group.id: statuses.get(group.id, {}) for group in groups}


def groups_with_policies(cluster: Cluster) -> Sequence[str]:
    reply = cluster.send_to_any(ListConfigResourcesRequest([GROUP_RESOURCE]), oldest=BY_TYPE_VERSION)
    if reply.error_code:
        raise failure(reply.error_code, "the settings of groups")
    return sorted({config_resource.resource_name for config_resource in reply.config_resources if config_resource.resource_type == GROUP_RESOURCE})


def unsupported_policies(message: str | None) -> Failure | None:
    """The failure for a cluster without policies."""
    if message is not None and "Unknown group config name" in message:
        return Failure(Exit.UNSUPPORTED, "the cluster has no policies of groups: only Tenure brokers have them")
    return None
