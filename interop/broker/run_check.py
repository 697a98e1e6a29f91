"""Runs one check and turns any exception into a verdict, so that the next checks still run."""

import time
import traceback
from collections.abc import Awaitable

from ariane.errors import ArianeError
from interop.broker.client import NotOffered
from interop.broker.table import Cell, Verdict
from interop.processes import InteropError
from interop.report import CheckFailed


async def run_check(check: Awaitable[object]) -> Cell:
    began_s = time.monotonic()
    verdict, reason = await _verdict(check)
    return Cell(verdict, reason, time.monotonic() - began_s)


async def _verdict(check: Awaitable[object]) -> tuple[Verdict, str]:
    try:
        await check
    except NotOffered as why:
        return Verdict.NOT_OFFERED, str(why)
    except (CheckFailed, InteropError, ArianeError) as problem:
        return Verdict.FAILED, str(problem)
    except Exception:
        # A bug in the check itself counts as a failure.
        return Verdict.FAILED, traceback.format_exc()
    return Verdict.PASSED, ""
