"""The soak: clients under load while the broker is killed many times, and a ledger that checks its guarantees.

`make soak` kills a hundred times under groups and fifty times under producers, the tests ten and five times. `ledger.py` judges groups,
`member.py` is a careful consumer, `standalone_committer.py` commits without a group, `campaign.py` puts them together; `record_ledger.py`, `producer.py`,
`reader.py` and `record_campaign.py` are the same for records, and `segments.py` checks the files on the disk. `world.py` starts and
kills the broker.
"""
