"""Values of any struct of the wire: random ones for Hypothesis, and the smallest one."""

from enum import Enum
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import msgspec
from hypothesis import strategies as st

S = TypeVar("S", bound=msgspec.Struct)

INT64 = st.integers(-(2**63), 2**63 - 1)
# Of an object's keys, "$ref" is excluded: it is fastjson's reference to another part of the text.
_KEYS = st.text(max_size=12).filter(lambda key: key != "$ref")
_SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=20),
    int: INT64,
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bytes: st.binary(max_size=60),
    type(None): st.none(),
}
_ZEROES: dict[Any, Any] = {str: "", int: 0, bool: False, bytes: b""}


def structs(kind: type[S], **overrides: st.SearchStrategy[Any]) -> st.SearchStrategy[S]:
    """Instances of `kind`; `overrides` replaces strategies of members."""
    members = {field.name: values(field.type) for field in msgspec.structs.fields(kind)}
    return st.builds(kind, **{**members, **overrides})


@cache
def values(kind: Any) -> st.SearchStrategy[Any]:
    if get_origin(kind) is Annotated:
        bounds = get_args(kind)[1]
        return st.integers(bounds.ge, bounds.le)
    kind = _plain(kind)
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if get_origin(kind) in (Union, UnionType):
        return st.one_of([values(arm) for arm in get_args(kind)])
    if get_origin(kind) is list:
        return st.lists(values(get_args(kind)[0]), max_size=3)
    if get_origin(kind) is dict:
        key, value = get_args(kind)
        return st.dictionaries(_KEYS if key is str else values(key), values(value), max_size=3)
    if issubclass(kind, Enum):
        return st.sampled_from(list(kind))
    assert issubclass(kind, msgspec.Struct), kind
    return structs(kind)


def smallest(kind: type[S]) -> S:
    """`kind` with nothing but its required fields, all of them empty or zero."""
    required = [field for field in msgspec.structs.fields(kind) if field.required]
    return kind(**{field.name: _ZEROES[_plain(field.type)] for field in required})


def _plain(kind: Any) -> Any:
    """The type below an annotation and a NewType."""
    kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    return getattr(kind, "__supertype__", kind)
