"""The decision log: what a worker decided, on record, so that somebody else can check it (docs/decisions.md).

The schema is `codecs/decision.py`. `runs.py` makes one record of many batches and `commits.py` one of many commits,
`journal.py` numbers records and never keeps traffic waiting, `to_topic.py` and `to_files.py` are where they go. Begin
at `journal.py`.
"""
