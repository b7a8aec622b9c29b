"""The text of `tenure --help`, which fits one screen, and the other pages of `tenure help`."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping
from typing import Final

from cli.arguments import TIMEOUT_DEFAULT

COMMAND_GROUPS = {
    "a broker on this machine": ("serve", "health", "log"),
    "consumer groups of any Kafka cluster": ("group",),
    "topics of any Kafka cluster": ("topic", "produce", "consume"),
    "logs of any Kafka cluster, explained": ("analyze",),
    "the cluster, and this command": ("cluster", "node", "store", "completion"),
}

OPENING = """\
usage: tenure COMMAND ...           tenure help COMMAND shows its actions, options and examples

A Kafka-compatible broker whose heart is the consumer-group coordinator with static membership,
and a tool for the groups and topics of any Kafka cluster from Kafka 2.4 on.
"""

ENVIRONMENT = f"""\
options before or after the command:
  --bootstrap HOST:PORT[,...]  bootstrap servers (127.0.0.1:9092)
  --config FILE                settings for TLS and the login (docs/secured.md)
  --timeout SECONDS            how long to wait in all for what does not answer ({TIMEOUT_DEFAULT:g})
  --json                       JSON instead of tables

environment:
  TENURE_BOOTSTRAP             the default of --bootstrap
  TENURE_CLIENT_CONFIG         the default of --config
  TENURE_...                   settings of serve: TENURE_GROUP_MAX_SIZE=50
  NO_COLOR                     no colour on a terminal
  TENURE_DEBUG=1               the traceback of an error, to report a defect

tenure --version shows the version, tenure help exit-codes what each exit code means.
"""

EXIT_CODES = """\
exit codes of serve:
  0   stopped in order, by SIGTERM, SIGINT or SIGHUP
  64  the command line is invalid
  65  the data directory has a format that this version cannot serve, or belongs to another node, cluster or data directory
  69  an address cannot be bound
  70  a defect; the log has the traceback
  71  this system is not supported
  73  the data directory cannot be created or written
  74  reading or writing failed
  75  another process uses the data directory, or has taken the node id
  78  a setting is wrong

exit codes of health:
  0   ready; without --ready also: answering, and wants a login that is not given
  1   not answering, or not as the client's settings say
  2   answering, but loading or suspended; refuses the login; with --ready also: wants a login
  64  the command line is invalid
  78  a setting is wrong

exit codes of log:
  0   no damage found
  64  the command line is invalid
  65  something is damaged, cannot be read or was written by a newer version
  66  nothing to read at the path
  74  reading failed

exit codes of store:
  0   done
  1   the target is not empty, or the source is in use or was not stopped in order
  64  the command line is invalid
  65  something is damaged, and no damaged record is skipped
  66  there is no such directory or cluster
  69  NATS does not answer, or refuses
  74  a file or folder cannot be read or written
  75  not now: another process uses the target
  76  nats-server is too old
  78  a setting is wrong

exit codes of analyze:
  0   done
  1   Spark failed
  2   found a status of --fail-on or worse, or a difference
  64  the command line is invalid
  65  the input cannot be read, or --out is not the folder of an analysis
  66  no such group
  69  no broker answers, or its listener wants something else than the client's settings say
  70  a defect of this command
  74  a file or folder cannot be read or written
  75  another run uses the same folder
  76  PySpark or Java is missing
  77  the cluster refuses the login, or the user may not read
  78  the client's settings are wrong

exit codes of the commands for a cluster:
  0   done, or nothing to do
  1   the cluster refused, a part failed, or the question was answered with no; cluster: something is wrong in the cluster
  64  the command line is invalid
  65  a given file is invalid
  66  no such group, topic, member or file
  69  no broker answers, or not the one that must, such as a coordinator; or its listener wants something else than the client's
      settings say, or its certificate is not trusted
  70  a defect of this command
  74  standard output or a file cannot be read or written
  75  not now: loading, or no coordinator or leader within the timeout; or a part is unknown, and what is known is printed
  76  the cluster does not serve such a request, or only older versions
  77  not allowed for this user, or the login or the client certificate is refused
  78  the client's settings (--config) are wrong
A command that can do only a part does it, names the rest with the reason, and exits with the code of that reason, of several the highest.

exit codes of all commands:
  71  this system is not supported
  130 interrupted by Ctrl-C, before the command was done
  141 the reader of standard output has closed it
  143 interrupted by SIGTERM, before the command was done
Commands that only a signal ends exit with 0 after Ctrl-C and SIGTERM: consume without --limit, --idle and --no-follow,
group history --follow, and analyze --follow.
"""


# What `tenure help` explains besides commands.
PAGES: Final = {"exit-codes": EXIT_CODES}

WIDTH = 100
NAME_WIDTH = 13


def page(parsers: Mapping[str, argparse.ArgumentParser], summaries: Mapping[str, str]) -> str:
    """The text of `tenure help`. `parsers`, `summaries`: command name -> its parser, and its summary."""
    parts = [OPENING]
    for title, names in COMMAND_GROUPS.items():
        lines = [f"{title}:"]
        for name in names:
            lines.append(f"  {name:<{NAME_WIDTH}}{summaries[name]}")
            indent = " " * (NAME_WIDTH + 2)
            lines += textwrap.wrap(", ".join(actions(parsers[name])), WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
        parts.append("\n".join(lines) + "\n")
    return "\n".join([*parts, ENVIRONMENT])


def actions(parser: argparse.ArgumentParser) -> list[str]:
    """The names of a command's actions."""
    return [name for action in parser._actions if isinstance(action, argparse._SubParsersAction) for name in action.choices]
