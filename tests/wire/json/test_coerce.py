"""Tolerant conversion of parsed JSON to typed values."""

from contextlib import suppress
from enum import Enum, IntEnum, IntFlag, StrEnum
from typing import Annotated, Any, NewType, Optional

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.errors import FieldError
from ariane.model.route import MessageQueue
from ariane.wire.json.coerce import coerce
from tests.wire.json.json_values import values


class Colour(Enum):
    RED = "red"
    GREEN = "green"


class Model(StrEnum):
    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class Code(IntEnum):
    PULL = 11
    SEND = 10


class Bits(IntFlag):
    WRITE = 2
    READ = 4


Offset = NewType("Offset", int)
QUEUE = MessageQueue(topic="T", broker_name="b", queue_id=0)
INT64_MAX = 2**63 - 1


class Inner(msgspec.Struct, rename="camel"):
    queue_id: int
    label: str = "none"


class Outer(msgspec.Struct, rename="camel", kw_only=True):
    client_id: str = msgspec.field(name="clientID")
    inner: Inner | None = None
    inners: list[Inner]
    tags: frozenset[str] = frozenset({"*"})
    table: dict[int, str] = {}
    count: int = 5
    ratio: float = 0.5
    ready: bool = True
    model: Model = Model.CLUSTERING


class Tree(msgspec.Struct):
    name: str
    children: list["Tree"] = []


class Even(msgspec.Struct):
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError("odd")


# --- scalars


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        (5, 5), ("5", 5), ("007", 7), (" 5\n", 5), ("+5", 5), ("-5", -5), (5.0, 5), ("5.0", 5), ("5.", 5), (True, 1),
        (None, 0), (Bits.READ, 4), (str(INT64_MAX), INT64_MAX), (-(2**63), -(2**63)),
    ],
)  # fmt: skip
def test_integers_are_read_from_what_looks_like_one(sent: object, meant: int) -> None:
    number = coerce(int, sent)
    assert number == meant
    assert type(number) is int


@pytest.mark.parametrize(
    "sent",
    [
        "",
        "5x",
        "0x5",
        "1_0",
        "٥",
        "5.5",
        5.5,
        "1e3",
        2**63,
        str(2**63),
        -(2**63) - 1,
        10**5000,
        "1" * 5000,
        1e300,
        [],
        {},
    ],
    ids=lambda sent: str(sent)[:10] if not isinstance(sent, int) else "huge",
)
def test_a_value_that_is_not_a_64_bit_integer_is_refused(sent: object) -> None:
    with pytest.raises(FieldError, match="64-bit integer"):
        coerce(int, sent)


@pytest.mark.parametrize(
    ("sent", "meant"), [(1, 1.0), (1.5, 1.5), ("1.5", 1.5), (" -2e3 ", -2000.0), ("7", 7.0), (None, 0.0), (True, 1.0)]
)
def test_numbers_are_read_from_text(sent: object, meant: float) -> None:
    assert coerce(float, sent) == meant


@pytest.mark.parametrize("sent", ["nan", "inf", "-Infinity", float("nan"), float("inf"), "1e999", "", "1,5", 2**64, []])
def test_a_value_that_is_not_a_finite_number_is_refused(sent: object) -> None:
    with pytest.raises(FieldError, match="a number"):
        coerce(float, sent)


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        (True, True), (False, False), ("true", True), ("TRUE", True), ("false", False), ("1", False), ("yes", False),
        ("", False), (1, True), (0, False), (None, False),
    ],
)  # fmt: skip
def test_booleans_are_read_as_java_parses_them(sent: object, meant: bool) -> None:
    assert coerce(bool, sent) is meant


@pytest.mark.parametrize("sent", [2, -1, 0.5, [], {}])
def test_other_numbers_are_neither_true_nor_false(sent: object) -> None:
    with pytest.raises(FieldError, match="true or false"):
        coerce(bool, sent)


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        ("x", "x"),
        (0, "0"),
        (-7, "-7"),
        (False, "false"),
        (True, "true"),
        (1.5, "1.5"),
        (Model.CLUSTERING, "CLUSTERING"),
    ],
)
def test_text_is_made_of_numbers_and_booleans(sent: object, meant: str) -> None:
    text = coerce(str, sent)
    assert text == meant
    assert type(text) is str


@pytest.mark.parametrize("sent", [None, [], {}, 10**5000], ids=["null", "array", "object", "huge"])
def test_a_value_that_is_not_text_is_refused(sent: object) -> None:
    with pytest.raises(FieldError, match="expected text"):
        coerce(str, sent)


@pytest.mark.parametrize(
    ("kind", "sent", "meant"),
    [
        (Model, "CLUSTERING", Model.CLUSTERING), (Model, "clustering", Model.CLUSTERING),
        (Model, "1", Model.CLUSTERING), (Model, 0, Model.BROADCASTING), (Model, 1.0, Model.CLUSTERING),
        (Colour, "green", Colour.GREEN), (Colour, "GREEN", Colour.GREEN), (Colour, 0, Colour.RED),
        (Colour, Colour.RED, Colour.RED), (Code, 10, Code.SEND), (Code, "11", Code.PULL), (Code, "send", Code.SEND),
        (Bits, 6, Bits.READ | Bits.WRITE), (Bits, "2", Bits.WRITE),
    ],
)  # fmt: skip
def test_enums_are_read_by_value_name_or_position(kind: type[Enum], sent: object, meant: Enum) -> None:
    assert coerce(kind, sent) is meant


@pytest.mark.parametrize(
    ("kind", "sent"),
    [(Model, 2), (Model, -1), (Model, "NEITHER"), (Model, None), (Model, True), (Model, []), (Code, 0), (Bits, 2**70)],
)
def test_a_value_that_is_not_a_member_of_an_enum_is_refused(kind: type[Enum], sent: object) -> None:
    with pytest.raises(FieldError, match=f"one of {kind.__name__}"):
        coerce(kind, sent)


# --- structs


def test_a_struct_is_read_by_its_wire_names_and_the_rest_is_ignored() -> None:
    sent = {
        "clientID": 7, "inner": {"queueId": "3", "later": []}, "inners": [{"queueId": 1, "label": 9}], "count": "12",
        "ratio": "0.25", "ready": "false", "model": 0, "tags": ["a", "b"], "table": {"0": "x", 1: 5}, "client_id": "no",
        3: "unknown",
    }  # fmt: skip
    assert coerce(Outer, sent) == Outer(
        client_id="7", inner=Inner(queue_id=3), inners=[Inner(queue_id=1, label="9")], count=12, ratio=0.25,
        ready=False, model=Model.BROADCASTING, tags=frozenset({"a", "b"}), table={0: "x", 1: "5"},
    )  # fmt: skip


def test_missing_members_take_their_defaults_and_missing_collections_are_empty() -> None:
    assert coerce(Outer, {"clientID": "c"}) == Outer(client_id="c", inners=[])


def test_null_means_the_default_or_none() -> None:
    nulls = dict.fromkeys(["inner", "inners", "tags", "table", "count", "ratio", "ready", "model"])
    assert coerce(Outer, {"clientID": "c", **nulls}) == Outer(client_id="c", inners=[])
    assert coerce(Inner, {"queueId": None}) == Inner(queue_id=0)


def test_an_empty_object_is_an_empty_list_as_lua_writes_it() -> None:
    assert coerce(Outer, {"clientID": "c", "inners": {}, "tags": {}}) == Outer(
        client_id="c", inners=[], tags=frozenset()
    )


def test_a_type_may_contain_itself() -> None:
    sent = {"name": "a", "children": [{"name": "b", "children": None}]}
    assert coerce(Tree, sent) == Tree("a", [Tree("b")])


def test_a_struct_that_rejects_its_members_is_a_field_error() -> None:
    assert coerce(Even, {"number": "4"}) == Even(4)
    with pytest.raises(FieldError, match=r"\$: not a valid Even: odd"):
        coerce(Even, {"number": 3})


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ({}, "$.clientID: missing"),
        ({"clientID": None}, "$.clientID: expected text, got None"),
        ([], "$: expected an object (Outer), got a list of 0"),
        (
            {"clientID": "c", "inners": [{"queueId": 1}, {"queueId": "x"}]},
            "$.inners[1].queueId: expected a 64-bit",
        ),
        ({"clientID": "c", "inners": {"a": 1}}, "$.inners: expected an array, got a dict of 1"),
        ({"clientID": "c", "inners": [{}]}, "$.inners[0].queueId: missing"),
        ({"clientID": "c", "table": [1]}, "$.table: expected an object, got a list of 1"),
        ({"clientID": "c", "table": {"x": "y"}}, "$.table.x: expected a 64-bit integer, got 'x'"),
        ({"clientID": "c", "count": "z" * 500}, "$.count: expected a 64-bit integer, got '" + "z" * 79 + "…"),
    ],
)
def test_an_error_names_path_expectation_and_value(sent: object, message: str) -> None:
    with pytest.raises(FieldError) as caught:
        coerce(Outer, sent)
    assert str(caught.value).startswith(message)
    assert len(str(caught.value)) < 160


def test_the_path_starts_where_the_caller_says() -> None:
    with pytest.raises(FieldError, match=r"header\.queueId: missing"):
        coerce(Inner, {}, where="header")


# --- collections and unions


@pytest.mark.parametrize(
    ("kind", "sent", "meant"),
    [
        (list[int], ["1", 2], [1, 2]),
        (set[str], ["a", 1], {"a", "1"}),
        (frozenset[int], ["1", 1], frozenset({1})),
        (tuple[int, ...], ["1", 2.0], (1, 2)),
        (list, [1, "a"], [1, "a"]),
        (dict, {"a": [1]}, {"a": [1]}),
        (dict[str, int], {0: "1", "b": 2}, {"0": 1, "b": 2}),
        (dict[int, Model], {"7": 1}, {7: Model.CLUSTERING}),
        (dict[Model, int], {"clustering": 1}, {Model.CLUSTERING: 1}),
        (dict[str, list[int]], {"a": None, "b": {}}, {"a": [], "b": []}),
        (list[Any], [None, {}], [None, {}]),
        (Offset, "5", 5),
        (list[Offset], ["5"], [5]),
        (Annotated[int, msgspec.Meta(ge=0)], "5", 5),
    ],
)
def test_collections_are_read_item_by_item(kind: Any, sent: object, meant: object) -> None:
    value = coerce(kind, sent)
    assert value == meant
    assert type(value) is type(meant)


@pytest.mark.parametrize(
    ("kind", "sent", "meant"),
    [
        (int | None, None, None), (int | None, "5", 5), (Optional[str], 5, "5"), (int | str, "5", "5"),  # noqa: UP045
        (int | str, 5, 5),
        (int | list[int], ["5"], [5]), (Inner | list[Inner], {"queueId": 1}, Inner(queue_id=1)),
        (int | msgspec.UnsetType, "5", 5), (None, None, None),
    ],
)  # fmt: skip
def test_unions_choose_the_best_match(kind: Any, sent: object, meant: object) -> None:
    assert coerce(kind, sent) == meant


@pytest.mark.parametrize(
    ("kind", "sent"),
    [
        (int | list[int], "x"), (int | None, []), (type(None), 0), (Annotated[int, msgspec.Meta(ge=0)], "-5"),
        (bytes, "eA=="), (tuple[int, str], [1, "a"]), (list[str], "abc"), (list[str], [None]), (dict[str, int], []),
    ],
)  # fmt: skip
def test_a_value_that_matches_no_type_is_refused(kind: Any, sent: object) -> None:
    with pytest.raises(FieldError):
        coerce(kind, sent)


def test_a_member_of_a_type_without_json_form_is_allowed_as_long_as_it_is_not_sent() -> None:
    class WithBody(msgspec.Struct):
        topic: str
        body: bytes = b""

    assert coerce(WithBody, {"topic": 5}) == WithBody("5")


@pytest.mark.parametrize(
    "key",
    [
        (("brokerName", "b"), ("queueId", 0), ("topic", "T")),
        '{"brokerName":"b","queueId":0,"topic":"T"}',
        "{topic:'T',queueId:'0',brokerName:'b'}",
    ],
)
def test_structs_are_keys_in_both_forms(key: object) -> None:
    assert coerce(dict[MessageQueue, int], {key: "12"}) == {QUEUE: 12}


@pytest.mark.parametrize("key", ["", "{", "[]", "{}", 7, (), (1, 2), (("topic", "T"),)])
def test_a_key_that_is_not_an_object_is_refused(key: object) -> None:
    with pytest.raises(FieldError):
        coerce(dict[MessageQueue, int], {key: 1})


@given(
    st.sampled_from([Outer, Inner, Tree, dict[MessageQueue, Inner], list[Model], int | str, dict[int, bool]]), values
)
def test_any_value_is_read_or_refused(kind: Any, value: object) -> None:
    with suppress(FieldError):
        coerce(kind, value)
