"""Send requests: checks, batches, coalesced appends, responses, and the fast path."""
