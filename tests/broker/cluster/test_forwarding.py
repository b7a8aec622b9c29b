"""The reply to a forwarded request."""

from __future__ import annotations

from broker.cluster.forwarding import ReplyTransport
from broker.net.guarded_transport import GuardedTransport
from broker.net.reply_writer import Transport as ClientTransport


def test_the_reply_to_a_forwarded_request_passes_the_checks_of_replies_to_clients() -> None:
    replies: list[bytes] = []
    leased = True
    transport: ClientTransport = ReplyTransport(replies.append, lambda: replies.append(b"ended"))  # type-checked: it has all that a connection uses
    guarded = GuardedTransport(transport, lambda: leased)
    guarded.write(b"one")
    guarded.writelines([b"tw", b"o"])
    assert not guarded.is_closing()
    assert guarded.get_extra_info("sslcontext") is None
    leased = False
    guarded.write(b"three")
    assert replies == [b"one", b"two", b"ended"]
