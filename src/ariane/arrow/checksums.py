"""The checksums of many records: of their bodies, and of whole records that have a seal."""

import numpy as np

from ariane.arrow.rows import Rows
from ariane.wire.crc import POSITIVE_INT32, whole_crc32
from ariane.wire.record_seal import SEAL_BYTES, SEAL_NAME
from ariane.wire.record_view import BrokenRecord, verify

_SEAL_BEGIN = SEAL_NAME[:8]
"""Of a length that is compared as one number (source.py)."""


def checksum_faults(rows: Rows) -> list[tuple[int, str]]:
    """Numbers of the rows that are not what was written, and why. The checksums are worked out one by one."""
    view = rows.source.view
    spans = map(slice, rows.body_position.tolist(), (rows.body_position + rows.body_length).tolist())
    # Without a step in Python for each: the checksums are the largest part of what a rebuild takes to read a log.
    found = np.fromiter(map(whole_crc32, map(view.__getitem__, spans)), np.int64, len(rows)) & POSITIVE_INT32
    suspects = (found != rows.field("bodyCRC", np.int64)) & (rows.body_length > 0)
    suspects |= _may_be_sealed(rows)
    faults = []
    for number in np.flatnonzero(suspects).tolist():
        verdict = verify(view, int(rows.position[number]))
        if isinstance(verdict, BrokenRecord):
            faults.append((number, verdict.reason))
    return faults


def _may_be_sealed(rows: Rows) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Those whose last property begins as a seal does, and which therefore are to be read as a whole."""
    sealed = np.zeros(len(rows), np.bool_)
    long_enough = np.flatnonzero(rows.text_length >= SEAL_BYTES)
    at = rows.text_position[long_enough] + rows.text_length[long_enough] - SEAL_BYTES
    sealed[long_enough] = rows.source.equal(at, _SEAL_BEGIN)
    return sealed
