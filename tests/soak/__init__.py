"""The soak: clients under load while the broker is killed many times, and a ledger that checks its guarantees.

`make soak` kills the broker a hundred times under groups and fifty times under producers, the tests four and two times. `ledger.py` checks the
guarantees of groups, `member.py` is a careful consumer, `standalone_committer.py` commits without a group, `campaign.py` runs them.
`record_ledger.py`, `producer.py`, `reader.py` and `record_campaign.py` are the same for records. `segments.py` checks the files on the disk,
and `soak_broker.py` starts and kills the broker.
"""
