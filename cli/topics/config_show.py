"""`tenure topic config show`: all settings of a topic, and where each value comes from."""

from __future__ import annotations

import argparse

from cli.client import Cluster, Exit, Failure
from cli.shown import Screen, plain
from cli.topics.finding import required_topics
from cli.topics.settings import setting_document, setting_table, similar_names, topic_settings


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    with Cluster.of(options) as cluster:
        required_topics(cluster, [options.topic])
        settings = topic_settings(cluster, [options.topic])[options.topic]
    for name in options.names:
        if name not in settings:
            raise Failure(Exit.MISSING, f"topics have no setting {plain(name)}{similar_names([name])}")
    chosen = [settings[name] for name in dict.fromkeys(options.names) or settings]
    documents = [setting_document(setting) for setting in chosen]
    if screen.json:
        screen.document({"topic": options.topic, "settings": documents})
    else:
        setting_table(screen, documents)
    return Exit.DONE
