"""Python steps: `module:function`, looked up before Spark starts, called with data frames."""

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ariane.spark.pipeline.model import PythonStep


def check_function(step: PythonStep, directory: Path) -> str | None:
    """What is wrong with it, or None."""
    module, colon, name = step.function.partition(":")
    if not colon or not module or not name:
        return f"{step.function[:80]!r} is no function: module:function expected"
    try:
        function = find_function(step, directory)
    except Exception as error:  # the user's own module runs here, and may fail in any way
        return f"{step.function} cannot be had: {type(error).__name__}: {error}"
    if not callable(function):
        return f"{step.function} is no function"
    try:
        inspect.signature(function).bind(*step.inputs, **step.args)
    except (TypeError, ValueError) as error:
        return f"{step.function} does not take {len(step.inputs)} inputs and args {sorted(step.args)}: {error}"
    return None


def find_function(step: PythonStep, directory: Path) -> Callable[..., Any]:
    """From a module beside the pipeline's file, or any other that Python finds."""
    module, _, name = step.function.partition(":")
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]
