"""The soak: groups under load while the broker is killed again and again, and a ledger of what must never be.

`make soak` kills a hundred times, the tests ten times. `ledger.py` judges, `member.py` is a careful client, `loners.py` commits without
a group, `world.py` starts and kills the broker, `running.py` puts them together.
"""
