"""Why a client does not get into a cluster, in one line with the remedy. No line has a password, a key or a token."""

from __future__ import annotations

from enum import Enum


class Cause(Enum):
    SETTINGS = "settings"  # the file is missing or wrong: a retry is useless
    LISTENER = "listener"  # the listener wants something else than the settings say, or its certificate is not accepted
    LOGIN = "login"  # the cluster refuses the user, the token or the client's certificate
    TOKEN = "token"  # the identity provider gives no token
    PROVIDER = "provider"  # the identity provider does not answer


class AccessError(Exception):
    """`line`: the problem, then the remedy; what a broker does is a predicate about it ("does not speak TLS: ...")."""

    def __init__(self, cause: Cause, problem: str, remedy: str = "") -> None:
        self.line = f"{problem}: {remedy}" if remedy else problem
        super().__init__(self.line)
        self.cause = cause
        self.remedy = remedy or None

    @property
    def about_broker(self) -> bool:
        return self.cause in (Cause.LISTENER, Cause.LOGIN)


def wrong_settings(problem: str, remedy: str = "") -> AccessError:
    return AccessError(Cause.SETTINGS, problem, remedy)


def other_listener(problem: str, remedy: str = "") -> AccessError:
    return AccessError(Cause.LISTENER, problem, remedy)


def refused_login(problem: str, remedy: str = "") -> AccessError:
    return AccessError(Cause.LOGIN, problem, remedy)
