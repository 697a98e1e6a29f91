"""Compares the commit logs of two brokers byte by byte, up to their common end."""

from pathlib import Path


def difference(first: Path, second: Path, end: int) -> str | None:
    """What is different; None if all files are equal. What lies behind `end` in the last file is no part of the log."""
    files = _files(first, end), _files(second, end)
    if files[0].keys() != files[1].keys():
        return f"files {sorted(files[0])} here, {sorted(files[1])} there"
    for begin in sorted(files[0]):
        problem = _file_difference(files[0][begin], files[1][begin], end - begin)
        if problem is not None:
            return problem
    return None if files[0] else f"no files in {first}"


def _files(directory: Path, end: int) -> dict[int, Path]:
    """By their first offset, without those that were made in advance."""
    named = {int(path.name): path for path in directory.iterdir() if path.name.isdecimal()}
    return {begin: path for begin, path in named.items() if begin < end}


def _file_difference(first: Path, second: Path, size: int) -> str | None:
    sizes = first.stat().st_size, second.stat().st_size
    if sizes[0] != sizes[1]:
        return f"{first.name} has {sizes[0]} bytes here, {sizes[1]} there"
    ours, theirs = first.read_bytes()[:size], second.read_bytes()[:size]
    if ours == theirs:
        return None
    at = next(at for at, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one != other)
    return (
        f"{first.name} differs at byte {at}: {ours[at : at + 16].hex(' ')} here, {theirs[at : at + 16].hex(' ')} there"
    )
