"""The garbage collector in Spark's Python workers.

Behind every task, and behind every call for a plan, pyspark's daemon looks at all objects of the worker's process. With
pyspark, pyarrow and numpy imported these are some hundred thousand, none of them garbage, and the look costs as much
as to decode tens of thousands of messages.
"""

import gc
import sys

_NEW_MODULES = 100
"""So many bring enough objects along to look once more. pandas has 400, and pyarrow imports it when first needed."""
_kept = 0


def keep_imports() -> None:
    """Takes what is there by now from the collector's sight: once for what a process imports, and only in a worker of
    Spark's.

    To be called where a task begins, when its modules are there and no rows yet. A driver is somebody else's process.
    """
    global _kept
    if len(sys.modules) >= _kept + _NEW_MODULES and _is_worker():
        gc.collect()
        gc.freeze()
        _kept = len(sys.modules)


def _is_worker() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
