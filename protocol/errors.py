"""ErrorCode: Kafka's error codes in replies. ProtocolError: a peer's bytes cannot be decoded."""

from __future__ import annotations

from enum import IntEnum


class ProtocolError(Exception):
    """A peer's bytes cannot be decoded; its connection is closed."""


class TooManyElements(ProtocolError):
    """A request has more elements than may be decoded."""


class EncodeError(ProtocolError):
    """A value does not fit its wire format: a bug of this program, not of the peer."""


class ErrorCode(IntEnum):
    """Kafka's error codes, up to 4.3."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133

    @property
    def message(self) -> str:
        """One sentence for people; empty for NONE."""
        return MESSAGES[int(self)]


# Kafka's clients retry the request after these errors.
RETRIABLE: frozenset[int] = frozenset(
    (
        2,
        3,
        5,
        6,
        7,
        9,
        13,
        14,
        15,
        16,
        19,
        20,
        41,
        51,
        56,
        70,
        71,
        72,
        74,
        75,
        78,
        80,
        83,
        84,
        88,
        89,
        100,
        103,
        106,
        122,
        123,
        133,
    )
)

MESSAGES: dict[int, str] = {
    -1: "The broker failed with an unexpected error.",
    0: "",
    1: "The partition has no record at this offset.",
    2: "The records are corrupt or not accepted here.",
    3: "This broker has no such topic or partition.",
    4: "The fetch size is not valid.",
    5: "The partition has no leader at the moment.",
    6: "This broker does not lead that partition.",
    7: "The request timed out.",
    8: "The broker is not available.",
    9: "No replica of the partition is available.",
    10: "A record batch is larger than the broker accepts.",
    11: "The controller epoch is older than the current one.",
    12: "The metadata of a committed offset is too long.",
    13: "The connection was lost before the reply arrived.",
    14: "The coordinator is still loading its log.",
    15: "The coordinator is not available.",
    16: "This broker is not the group's coordinator.",
    17: "The topic name is not valid, or the topic is internal.",
    18: "The records are larger than a segment.",
    19: "Too few replicas are in sync to accept records.",
    20: "The records were written, but too few replicas were in sync.",
    21: "Required acks must be 0, 1 or -1.",
    22: "The generation is not the group's current one.",
    23: "The member supports no protocol that all members of the group support.",
    24: "The group id is not valid.",
    25: "The group has no such member.",
    26: "The session timeout is outside what the broker allows.",
    27: "The group is rebalancing; join it again.",
    28: "The committed offsets do not fit one record batch.",
    29: "The client is not authorized for the topic.",
    30: "The client is not authorized for the group.",
    31: "The client is not authorized for this operation on the cluster.",
    32: "The timestamp of a record is outside what the topic allows.",
    33: "The broker does not support this SASL mechanism.",
    34: "The request is not valid in this state of the SASL exchange.",
    35: "The broker does not serve that version of the request.",
    36: "A topic with this name exists already.",
    37: "The number of partitions is not valid.",
    38: "The replication factor is not possible here.",
    39: "The assignment of replicas is not possible here.",
    40: "A setting is unknown, or its value is not valid.",
    41: "This broker is not the controller.",
    42: "The request is not valid.",
    43: "The record format of the log does not support the request.",
    44: "A policy of the broker refuses this.",
    45: "The sequence number does not follow the producer's last one.",
    46: "The producer's batch was written before.",
    47: "The producer epoch is older than the current one.",
    48: "The transaction's state does not allow this.",
    49: "The transactional id belongs to another producer id.",
    50: "The transaction timeout is longer than the broker allows.",
    51: "Another operation of the transaction is still in progress.",
    52: "The transaction coordinator was replaced by a newer one.",
    53: "The client is not authorized for the transactional id.",
    54: "Security is disabled on the broker.",
    55: "The broker did not attempt the operation, because another part of the request failed.",
    56: "The log could not be read or written.",
    57: "There is no such log directory.",
    58: "SASL authentication failed.",
    59: "The broker has no state of this producer id.",
    60: "The partition is already being reassigned.",
    61: "Delegation tokens are disabled.",
    62: "There is no such delegation token.",
    63: "The delegation token belongs to another owner.",
    64: "Delegation tokens cannot be requested over this connection.",
    65: "The client is not authorized for the delegation token.",
    66: "The delegation token has expired.",
    67: "The type of principal is not supported.",
    68: "The group still has members.",
    69: "There is no such group.",
    70: "There is no such fetch session.",
    71: "The epoch of the fetch session is not valid.",
    72: "The partition's leader has no listener of this name.",
    73: "Topic deletion is disabled.",
    74: "The leader epoch in the request is older than the partition's.",
    75: "The leader epoch in the request is newer than the partition's.",
    76: "The client does not support the compression type of the partition.",
    77: "The broker epoch is older than the current one.",
    78: "The new leader does not know its high watermark yet.",
    79: "Join again with the member id in this reply.",
    80: "The preferred leader is not available.",
    81: "The group has its maximum number of members.",
    82: "Another member has this group.instance.id.",
    83: "No replica is eligible as leader of the partition.",
    84: "The partition needs no election: it has the right leader.",
    85: "The partition is not being reassigned.",
    86: "The group still subscribes to the topic.",
    87: "A record in the batch is not valid.",
    88: "A transaction has pending offsets of the group.",
    89: "The client has exceeded its quota.",
    90: "A newer producer with this transactional id has fenced this one.",
    91: "The request names a resource that does not exist.",
    92: "The request names a resource twice.",
    93: "The credential is too weak, or its form is not valid.",
    94: "The sender or the receiver is not a voter.",
    95: "The update has no valid version.",
    96: "The features could not be updated.",
    97: "The principal of a forwarded request cannot be decoded.",
    98: "There is no such snapshot.",
    99: "The position is outside of the snapshot.",
    100: "This broker has no topic with this id.",
    101: "A broker with this id is already registered.",
    102: "No broker with this id is registered.",
    103: "The log belongs to another topic id.",
    104: "The request is for another cluster.",
    105: "There is no such transactional id.",
    106: "The fetch session mixes topics with and without ids.",
    107: "A replica of the new ISR is not eligible.",
    108: "A new leader was elected.",
    109: "The offset is in tiered storage.",
    110: "The member epoch is fenced; release the partitions and join again.",
    111: "Another member still has this instance id.",
    112: "The group does not support this assignor.",
    113: "The member epoch is stale; send a heartbeat and retry.",
    114: "The request is not for this kind of listener.",
    115: "This kind of listener is not supported yet.",
    116: "There is no such controller.",
    117: "There is no such telemetry subscription.",
    118: "The telemetry is larger than the broker accepts.",
    119: "The registration of the broker is not valid.",
    120: "The transaction failed; abort it and continue.",
    121: "The state of the record does not allow this acknowledgement.",
    122: "There is no such share session.",
    123: "The epoch of the share session is not valid.",
    124: "The epoch of the share group's state is older than the current one.",
    125: "The voter's key is not this replica's.",
    126: "The voter exists already.",
    127: "There is no such voter.",
    128: "The regular expression is not valid.",
    129: "The client's metadata is too old; bootstrap again.",
    130: "The topology is not valid.",
    131: "The epoch of the topology is not valid.",
    132: "The epoch of the topology is outdated.",
    133: "The limit of share sessions is reached.",
}
