"""Tuning of the garbage collector in Spark's Python workers.

After every task, and after every planning call, pyspark's daemon runs a full garbage collection in the worker. With
pyspark, pyarrow and numpy imported it visits some hundred thousand objects, none of them garbage, which costs as much
as decoding tens of thousands of messages.
"""

import gc
import sys

_NEW_MODULES = 100
"""After this many new modules, freeze again. pandas has 400, and pyarrow imports it when first needed."""
_frozen_modules = 0


def keep_imports() -> None:
    """Excludes the objects that exist now from garbage collection (gc.freeze), but only in a worker process of Spark.

    Call it where a task begins, when its modules are imported and no rows are read. A driver is the user's process, and
    is left alone.
    """
    global _frozen_modules
    if len(sys.modules) >= _frozen_modules + _NEW_MODULES and _is_worker():
        gc.collect()
        gc.freeze()
        _frozen_modules = len(sys.modules)


def _is_worker() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
