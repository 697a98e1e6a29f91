"""Pull requests: checks, reads, long polling, filters, responses, and the fast path."""
