"""The page of metrics: what is declared (declared.py), gathered on the loop, written in a thread, served over HTTP."""
