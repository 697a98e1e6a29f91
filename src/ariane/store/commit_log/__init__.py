"""The commit log: files, recovery, block checksums."""
