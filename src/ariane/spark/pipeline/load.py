"""A pipeline's file, read and checked: SettingsError with FILE:LINE, cause and cure for each mistake in it."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from ariane.errors import SettingsError
from ariane.spark.pipeline.checks import check
from ariane.spark.pipeline.document import Document, Section
from ariane.spark.pipeline.document_parts import read_sink, read_source, read_step, view_names
from ariane.spark.pipeline.mistakes import Mistakes, nearest
from ariane.spark.pipeline.model import Mode, Pipeline
from ariane.spark.pipeline.nodes import Node, Scalar, is_null, line_of, read_yaml
from ariane.spark.pipeline.params import NAMESRV, TYPES, Param, Values

_TOP = (
    *("pipeline", "about", "mode", "interval", "checkpoint", "metrics", "spark"),
    *("params", "sources", "steps", "sinks"),
)
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_PLAIN = Values({})
T = TypeVar("T")


def load_pipeline(path: Path, given: Mapping[str, str], namesrv: str, shown_as: str | None = None) -> Pipeline:
    """The file with `given` for its parameters. Nothing is contacted and Spark is not started."""
    file = shown_as or str(path)
    root = read_yaml(path, file)
    mistakes = Mistakes(file)
    top = Document(_PLAIN, mistakes).section(root, "the pipeline", _TOP)
    params = _params(top, mistakes)
    document = Document(_values(params, given, namesrv, mistakes), mistakes)
    pipeline = _pipeline(document, root, path, file, params)
    if not mistakes:
        check(pipeline, namesrv, mistakes)
    mistakes.raise_if_any()
    return pipeline


def load_params(path: Path, shown_as: str | None = None) -> tuple[str, dict[str, Param]]:
    """What a pipeline is about, and its parameters, without a value for any of them."""
    file = shown_as or str(path)
    root = read_yaml(path, file)
    mistakes = Mistakes(file)
    top = Document(_PLAIN, mistakes).section(root, "the pipeline", _TOP)
    params = _params(top, mistakes)
    about = top.text("about")
    mistakes.raise_if_any()
    return about, params


def _pipeline(document: Document, root: Node, path: Path, file: str, params: dict[str, Param]) -> Pipeline:
    top = document.section(root, "the pipeline", _TOP)
    name = top.required("pipeline")
    if name and not _NAME.fullmatch(name):
        top.mistake("pipeline", f"{name[:60]!r} is no name: letters, digits, - and _ expected")
    return Pipeline(
        name=name,
        file=file,
        directory=path.resolve().parent,
        about=top.text("about"),
        mode=Mode(top.choice("mode", tuple(Mode), Mode.BATCH)),
        interval_s=top.duration("interval", 0.0),
        checkpoint=top.optional("checkpoint"),
        metrics=top.optional("metrics"),
        spark=top.texts("spark"),
        params=params,
        sources=_members(document, top, "sources", read_source),
        steps=_members(document, top, "steps", read_step),
        sinks=_members(document, top, "sinks", read_sink),
    )


def _members(
    document: Document, top: Section, name: str, read: Callable[[Document, str, Node], T | None]
) -> dict[str, T]:
    if name not in top:
        return {}
    section = document.section(top.fields[name], name)
    found = {one: read(document, one, section.fields[one]) for one in view_names(document, section)}
    return {one: value for one, value in found.items() if value is not None}


def _params(top: Section, mistakes: Mistakes) -> dict[str, Param]:
    if "params" not in top:
        return {}
    section = top.document.section(top.fields["params"], "params")
    params = {}
    for name in view_names(top.document, section):
        if name == NAMESRV:
            section.mistake(name, "always there, as the nameservers of -n: choose another name")
        params[name] = _param(section, name)
        param = params[name]
        fault = None if param.default is None else param.fault(param.default)
        if fault:
            section.mistake(name, f"the default {fault}")
    return params


def _param(section: Section, name: str) -> Param:
    node = section.fields[name]
    if isinstance(node, Scalar):  # the short form
        return Param(name, line_of(node), default=None if is_null(node) else section.text(name))
    below = section.inner(name, ("type", "default", "choices", "about"))
    has_default = "default" in below and not is_null(below.fields["default"])
    return Param(
        name,
        below.line,
        below.choice("type", TYPES, "string"),
        below.text("default") if has_default else None,
        "default" not in below,
        below.words("choices") or (),
        below.text("about"),
    )


def _values(params: Mapping[str, Param], given: Mapping[str, str], namesrv: str, mistakes: Mistakes) -> Values:
    for name, text in given.items():
        if name not in params:
            raise SettingsError(f"--set {name}: {mistakes.file} has no such parameter: {nearest(name, params)}")
        fault = params[name].fault(text)
        if fault:
            raise SettingsError(f"--set {name}={text}: {fault}")
    values: dict[str, str | None] = {NAMESRV: namesrv}
    for name, param in params.items():
        values[name] = given.get(name, param.default)
        if param.is_required and name not in given:
            about = f" ({param.about.rstrip('.')})" if param.about else ""
            mistakes.add(param.line, f"parameter {name}{about} has no default: give it with --set {name}=VALUE")
            values[name] = _stand_in(param)
    return Values(values)


def _stand_in(param: Param) -> str:
    """For a value that is missing, so that its uses are not mistakes as well."""
    return param.choices[0] if param.choices else {"duration": "1s", "bool": "true"}.get(param.type, "0")
