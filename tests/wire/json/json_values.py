"""Values that JSON in fastjson's dialect can carry, for Hypothesis."""

from hypothesis import strategies as st

texts = st.text(st.characters(exclude_categories=["Cs"]))
int64s = st.integers(-(2**63), 2**63 - 1)
scalars = st.none() | st.booleans() | int64s | st.floats(allow_nan=False, allow_infinity=False) | texts
names = texts.filter(lambda name: name not in ("", "$ref"))
object_keys = st.dictionaries(names, st.booleans() | int64s | texts, max_size=4).map(
    lambda members: tuple(sorted(members.items()))
)


def _containers(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    present = inner.filter(lambda value: value is not None)  # a member without a value is not written
    return st.lists(inner) | st.dictionaries(names | int64s | object_keys, present)


values: st.SearchStrategy[object] = st.recursive(scalars, _containers, max_leaves=30)
