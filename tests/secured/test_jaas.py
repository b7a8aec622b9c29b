"""`sasl.jaas.config` as Java reads it; errors show no part of it."""

from __future__ import annotations

import pytest

from secured.errors import AccessError
from secured.jaas import parse_jaas

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
SECRET = "hunter2pw"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f'{SCRAM} required username="a" password="b";', {"username": "a", "password": "b"}),
        (f"{SCRAM} required username='a' password=b ;", {"username": "a", "password": "b"}),
        (f'{SCRAM} REQUIRED\n  username = "a"\n  password="b;=\'c";', {"username": "a", "password": "b;='c"}),
        (f'{SCRAM} required password="a\\"b\\\\c" username="";', {"username": "", "password": 'a"b\\c'}),
        (f'{SCRAM} required password=";" username="=";', {"password": ";", "username": "="}),
        (f"{SCRAM} required;", {}),
    ],
)
def test_options(text: str, options: dict[str, str]) -> None:
    assert parse_jaas(text, "it") == ("ScramLoginModule", options)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "does not end with ;"),
        (f'{SCRAM} required password="{SECRET}"', "does not end with ;"),
        (f'{SCRAM} required password="{SECRET};', "a quotation mark is not closed"),
        (f'{SCRAM} required password={SECRET}" x;', "a quotation mark is not closed"),
        (f'{SCRAM} password="{SECRET}";', "does not begin with a login module"),
        (f'username="a" password="{SECRET}";', "does not begin with a login module"),
        (f'{SCRAM} required username="a" "{SECRET}";', "option 2 of it is not NAME"),
        (f"{SCRAM} required username=a {SECRET}=;", "option 2 of it is not NAME"),
        (f"{SCRAM} required username={SECRET} password;", "option 2 of it is not NAME"),
        (f'{SCRAM} required; {SCRAM} required password="{SECRET}";', "more than one login module"),
    ],
)
def test_what_is_not_in_the_format_is_named_without_a_value(text: str, problem: str) -> None:
    with pytest.raises(AccessError) as raised:
        parse_jaas(text, "it")
    assert problem in raised.value.line
    assert SECRET not in raised.value.line
