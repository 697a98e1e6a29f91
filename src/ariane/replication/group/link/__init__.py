"""The connection of a slave of a group to its master, as bytes: no sockets, no clock, no tasks.

introduction.py   who both are, and which epochs their logs have
leader_end.py     the master's end: bytes in, events of the group out, and the stream
follower_end.py   the slave's end
state.py          what is not in the log - topics, groups, offsets, progress - and its frames
outbox.py         at a master: gathers what changed       inbox.py   at a slave: holds it until the log has come so far
held.py           values that wait for a position of the log
"""
