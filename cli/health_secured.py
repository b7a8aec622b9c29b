"""The probe of `tenure health` over TLS and with a login, by the client of the other commands."""

from __future__ import annotations

from contextlib import closing

from broker.settings.endpoints import format_endpoint
from cli.client.connection import Connection, NoReply
from cli.client.security import failure_of_settings
from cli.health import NOT_READY, SILENT, Exchange, NotKafkaError, WantsLoginError, in_our_words, query_state
from secured.errors import Cause
from secured.security import Security


def probe_secured(host: str, port: int, deadline: float, security: Security) -> tuple[int, str]:
    """The exit code and the message. A broker that refuses the login answers, and is not known to be ready."""
    try:
        with closing(Connection(host, port, deadline, security)) as connection:
            return query_state(Exchange(connection.channel, deadline))
    except NoReply as no_reply:
        if no_reply.refusal is not None and no_reply.refusal.cause == Cause.SETTINGS:
            raise failure_of_settings(no_reply.refusal) from no_reply
        answers = no_reply.refusal is not None and no_reply.refusal.cause != Cause.LISTENER
        text = no_reply.full_text.removeprefix(format_endpoint(host, port))
        return NOT_READY if answers else SILENT, in_our_words(text.lstrip(": "))
    except WantsLoginError:
        return NOT_READY, "answers, and wants a login: set security.protocol=SASL_SSL in the file of client settings"
    except NotKafkaError as error:
        return SILENT, f"does not answer as Kafka: {error}"
    except TimeoutError:
        return SILENT, "accepts connections, but does not answer in time"
    except OSError as error:
        return SILENT, f"does not answer: {(error.strerror or str(error)).lower()}"
