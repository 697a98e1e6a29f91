"""Access control: accounts, their rules, and the guard that checks each request."""
