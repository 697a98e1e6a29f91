"""Access control of the broker: what each request requires, and the guard that checks it (accounts: ariane/acl)."""
