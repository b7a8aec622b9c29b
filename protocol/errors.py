"""ErrorCode: Kafka's error codes in replies. ProtocolError: a peer's bytes cannot be decoded."""

from __future__ import annotations

from enum import IntEnum


class ProtocolError(Exception):
    """A peer's bytes cannot be decoded; its connection is closed."""


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
    -1: "The broker failed in a way that it did not foresee.",
    0: "",
    1: "The partition holds no such offset.",
    2: "The records are damaged or not acceptable here.",
    3: "There is no such topic or partition here.",
    4: "The fetch size makes no sense.",
    5: "The partition has no leader at the moment.",
    6: "This broker does not lead that partition.",
    7: "The request took too long.",
    8: "The broker is not there.",
    9: "No replica of that partition is there.",
    10: "A record batch is larger than the broker takes.",
    11: "The controller has moved on.",
    12: "The metadata of a committed offset is too long.",
    13: "The connection broke before an answer came.",
    14: "The coordinator is still loading its log.",
    15: "The coordinator is not ready to answer.",
    16: "This broker does not coordinate that group.",
    17: "No topic can have that name, or it is not for clients.",
    18: "The records do not fit one segment.",
    19: "Too few replicas are in sync to accept records.",
    20: "Written, but too few replicas were in sync to be sure of it.",
    21: "The acks asked for must be 0, 1 or -1.",
    22: "That is not the group's generation.",
    23: "The member and its group share no protocol.",
    24: "No group can have that id.",
    25: "The group has no such member.",
    26: "The session timeout is outside what the broker allows.",
    27: "The group is rebalancing; join it again.",
    28: "The committed offsets do not fit one record batch.",
    29: "The topic may not be used by this client.",
    30: "The group may not be used by this client.",
    31: "The cluster may not be used like this by this client.",
    32: "The timestamp of a record is outside what the topic allows.",
    33: "The broker does not know that SASL mechanism.",
    34: "That request is out of turn in the SASL exchange.",
    35: "The broker does not serve that version of the request.",
    36: "A topic of that name is there already.",
    37: "A topic cannot have that number of partitions.",
    38: "The replication factor is not possible here.",
    39: "The assignment of replicas is not possible here.",
    40: "A setting is unknown or its value is not acceptable.",
    41: "This broker is not the controller.",
    42: "The request contradicts itself or cannot be carried out as it stands.",
    43: "The log's record format cannot answer that.",
    44: "A policy of the broker refuses this.",
    45: "A batch of the producer is missing before this one.",
    46: "That batch was written before.",
    47: "A newer incarnation of the producer has taken over.",
    48: "The transaction's state does not allow this.",
    49: "The transactional id belongs to another producer id.",
    50: "The transaction timeout is longer than the broker allows.",
    51: "Another step of the same transaction is still under way.",
    52: "A newer transaction coordinator has taken over.",
    53: "The transactional id may not be used by this client.",
    54: "The broker has no security set up.",
    55: "Not tried, because something else in the request failed.",
    56: "The log could not be read or written.",
    57: "There is no such log directory.",
    58: "SASL authentication failed.",
    59: "Nothing is known of that producer id any more.",
    60: "The partition is being moved already.",
    61: "Delegation tokens are switched off.",
    62: "There is no such delegation token.",
    63: "The delegation token belongs to someone else.",
    64: "Delegation tokens cannot be asked for over this connection.",
    65: "The delegation token may not be used by this client.",
    66: "The delegation token has expired.",
    67: "That type of principal is not known.",
    68: "The group still has members.",
    69: "There is no such group.",
    70: "There is no such fetch session.",
    71: "The fetch session is at another epoch.",
    72: "The partition's leader has no listener of that name.",
    73: "Topics cannot be deleted here.",
    74: "The leader epoch asked with is older than the partition's.",
    75: "The leader epoch asked with is newer than the partition's.",
    76: "The client cannot read the compression that the partition uses.",
    77: "The broker has registered anew since.",
    78: "The new leader does not know yet how far the log is safe.",
    79: "Join again with the member id in this answer.",
    80: "The preferred leader cannot lead now.",
    81: "The group takes no more members.",
    82: "Another member has taken over this group.instance.id.",
    83: "No replica may lead the partition now.",
    84: "The partition has the leader that it should have.",
    85: "The partition is not being moved.",
    86: "The group still consumes the topic.",
    87: "A record in the batch is not acceptable.",
    88: "A transaction still holds offsets of the group open.",
    89: "The client does more than its quota allows.",
    90: "A newer producer with this transactional id has taken over.",
    91: "The request names something that is not there.",
    92: "The request names the same thing twice.",
    93: "The credential is too weak or not of an accepted form.",
    94: "Sender or receiver is not among the voters expected.",
    95: "The update's version makes no sense.",
    96: "The features could not be updated.",
    97: "A forwarded principal could not be read.",
    98: "There is no such snapshot.",
    99: "The snapshot has no such position.",
    100: "There is no topic with that id here.",
    101: "A broker with that id is there already.",
    102: "No broker with that id is registered.",
    103: "The log belongs to another topic id.",
    104: "This is another cluster.",
    105: "There is no such transactional id.",
    106: "The fetch session mixes topics with and without ids.",
    107: "A replica in the new ISR may not be there.",
    108: "Done, and the partition has a new leader.",
    109: "The offset is in tiered storage.",
    110: "The member's epoch is fenced; give up its partitions and join anew.",
    111: "Another member still holds this instance id.",
    112: "The group does not know that assignor.",
    113: "The member's epoch is stale; heartbeat again and retry.",
    114: "This listener is not for such requests.",
    115: "There are no such listeners yet.",
    116: "There is no such controller.",
    117: "There is no such telemetry subscription.",
    118: "The telemetry is larger than the broker takes.",
    119: "The broker's registration is not acceptable.",
    120: "The transaction failed; abort it and go on.",
    121: "The record cannot be acknowledged in the state that it is in.",
    122: "There is no such share session.",
    123: "The share session is at another epoch.",
    124: "The share group's state is at another epoch.",
    125: "The voter's key is not this replica's.",
    126: "That voter is there already.",
    127: "There is no such voter.",
    128: "The regular expression cannot be read.",
    129: "What the client knows is too old; start from its bootstrap servers again.",
    130: "The topology is not valid.",
    131: "The topology's epoch is not valid.",
    132: "The topology's epoch is outdated.",
    133: "There are too many share sessions.",
}
