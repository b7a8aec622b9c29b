"""A request of a playbook and its reply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from coordinator import JoinReply, SyncReply
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tests.coordinator.stage import Stage

Bytes = bytes | int


def as_bytes(value: Bytes) -> bytes:
    return bytes([value]) if isinstance(value, int) else value


class SentRequest:
    """A request, and the place where its reply arrives. Every kind of request has its own `expect`."""

    def __init__(self, play: Stage, request_name: str) -> None:
        self.play = play
        self.title = request_name
        self.reply: Any = None
        self.answered = False
        self.at_ms = -1

    def __repr__(self) -> str:
        return self.title

    # Called by the shard.

    def release(self) -> None:
        assert not self.answered, f"{self}: answered twice"
        self.answered = True
        self.at_ms = self.play.now - self.play.began
        self.play.answers.append(self)

    def fail(self, error: int) -> None:
        self.reply = self.failed(error)
        self.release()

    def failed(self, error: int) -> Any:
        return error

    # Called by tests.

    @property
    def parked(self) -> bool:
        """Whether the request has no reply yet: it waits for other members, or for the log."""
        return not self.answered

    def expect_parked(self) -> Self:
        assert self.parked, f"{self}: answered with {show(self.reply)}"
        return self

    def expect(self, error: int = ErrorCode.NONE, *, at: int | None = None) -> SentRequest:
        """The reply has arrived with this code; `at`: at this time, in milliseconds after the set-up."""
        self.check_arrival(at)
        self.check_equal("error", self.reply, error)
        return self

    def check_arrival(self, at: int | None) -> None:
        assert self.answered, f"{self}: no answer yet"
        if at is not None:
            assert self.at_ms == at, f"{self}: answered at {self.at_ms}, not at {at}: {show(self.reply)}"

    def check_equal(self, name: str, actual: object, should: object) -> None:
        assert actual == should, f"{self}: {name} is {actual!r}, not {should!r}: {show(self.reply)}"


def show(reply: object) -> str:
    slots = getattr(type(reply), "__slots__", None)
    return repr(reply) if slots is None or isinstance(reply, tuple) else " ".join(f"{name}={getattr(reply, name)!r}" for name in slots)


class SentJoin(SentRequest):
    def failed(self, error: int) -> JoinReply:
        self.member_id = ""
        return JoinReply(error)

    def expect(
        self,
        error: int = ErrorCode.NONE,
        *,
        generation: int | None = None,
        leader: str | None = None,
        id: str | None = None,
        members: list[str] | str | None = None,
        skip: bool = False,
        protocol: str | None = None,
        type: str | None = None,
        at: int | None = None,
    ) -> SentJoin:
        """Members are named by actor. An error reply must have generation -1, and of the other fields only the member id, unless the test says more."""
        self.check_arrival(at)
        reply: JoinReply = self.reply
        self.check_equal("error", reply.error, error)
        name = self.play.id_of
        if error:
            generation = -1 if generation is None else generation
            if generation == -1:
                self.check_equal("protocol", (reply.protocol_type, reply.protocol_name), (None, None))
                leader = "" if leader is None else leader
            members = [] if members is None else members
        if generation is not None:
            self.check_equal("generation", reply.generation, generation)
        if leader is not None:
            self.check_equal("leader", reply.leader, name(leader))
        if id is not None:
            self.check_equal("id", self.member_id, name(id))
        if members is not None:
            self.check_equal("members", [member[0] for member in reply.members], [name(member) for member in members])
        if protocol is not None:
            self.check_equal("protocol", reply.protocol_name, protocol)
        if type is not None:
            self.check_equal("type", reply.protocol_type, type)
        self.check_equal("skip", reply.skip_assignment, skip)
        return self


class SentSync(SentRequest):
    def failed(self, error: int) -> SyncReply:
        self.assignment = b""
        return SyncReply(error)

    def expect(self, error: int = ErrorCode.NONE, assignment: Bytes | None = None, *, at: int | None = None) -> SentSync:
        """Check the reply: a reply with an error has no assignment and no protocol."""
        self.check_arrival(at)
        reply: SyncReply = self.reply
        self.check_equal("error", reply.error, error)
        if error:
            self.check_equal("content", (self.assignment, reply.protocol_type, reply.protocol_name), (b"", None, None))
        if assignment is not None:
            self.check_equal("assignment", self.assignment, as_bytes(assignment))
        return self


class SentLeave(SentRequest):
    def failed(self, error: int) -> int:
        return error

    def expect(self, *errors: int, at: int | None = None) -> SentLeave:
        """One code for each leaving member; `expect(NONE)` is enough for a single member. A reply that is an int is the error of the whole request."""
        self.check_arrival(at)
        self.check_equal("errors", self.reply, list(errors or [ErrorCode.NONE]))
        return self

    def expect_refused(self, error: int) -> SentLeave:
        """The whole request got this error, because the log failed."""
        self.check_arrival(None)
        self.check_equal("error", self.reply, error)
        return self


class SentCommit(SentRequest):
    too_large: set[tuple[str, int]]

    def expect(self, error: int = ErrorCode.NONE, *, too_large: list[tuple[str, int]] | None = None, at: int | None = None) -> SentCommit:
        """`too_large`: the partitions answered with error 12, whatever error the others get."""
        super().expect(error, at=at)
        self.check_equal("too large", self.too_large, set(too_large or []))
        return self


class SentOffsetFetch(SentRequest):
    """OffsetFetch of a single partition; a missing offset is -1."""

    def expect(  # type: ignore[override]
        self, offset: int = -1, *, epoch: int | None = None, metadata: str | None = None, commit_ms: int | None = None, expire_ms: int = -1
    ) -> SentOffsetFetch:
        self.check_arrival(None)
        reply = self.reply
        self.check_equal("offset", reply.offset, offset)
        for name, value in (("leader_epoch", epoch), ("metadata", metadata), ("commit_ms", commit_ms)):
            if value is not None:
                self.check_equal(name, getattr(reply, name), value)
        self.check_equal("expire_ms", reply.expire_ms, expire_ms)
        return self

    def failed(self, error: int) -> object:
        raise AssertionError(f"{self}: the log failed with {error}")


class SentOffsetDelete(SentRequest):
    """OffsetDelete: one error for the request, or a code for each partition."""

    def expect(self, error: int = ErrorCode.NONE, each: list[int] | None = None) -> SentOffsetDelete:  # type: ignore[override]
        self.check_arrival(None)
        top, codes = self.reply
        self.check_equal("error", top, error)
        if each is not None:
            self.check_equal("codes", codes, each)
        return self

    def failed(self, error: int) -> object:
        return error, []
