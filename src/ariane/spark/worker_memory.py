"""The garbage collector in Spark's Python workers.

Behind every task, and behind every call for a plan, pyspark's daemon looks at all objects of the worker's process. With
pyspark, pyarrow and numpy imported these are some hundred thousand, none of them garbage, and the look costs as much
as to decode tens of thousands of messages.
"""

import gc
import sys
from functools import cache


@cache
def keep_imports() -> None:
    """Takes what is there by now from the collector's sight: once for a process, and only in a worker of Spark's.

    To be called where a task begins, when all modules are there and no rows yet. A driver is somebody else's process.
    """
    if _is_worker():
        gc.collect()
        gc.freeze()


def _is_worker() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
