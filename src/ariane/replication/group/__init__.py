"""A group of members that elects its master: a state machine without clock, socket or task, and its values.

machine.py        Group: events in, effects out; joining, roles, what the record of the group says
follower.py       what a slave does: its master's frames, truncation, standing for election
leader.py         what a master does: acknowledgements, the in-sync set, fencing, switches
transactions.py   every change of the metadata store
events.py         what happens to a member             effects.py   what it has to do
link/             both as bytes of a connection
"""
