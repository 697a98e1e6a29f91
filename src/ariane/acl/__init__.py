"""Accounts, which broker and nameserver share: the file of accounts, their rules, and the check of signatures."""
