"""The broker: takes messages in, keeps them, and hands them out to consumer groups."""
