"""Policies of groups, which operators set: rules beyond those of Kafka."""
