"""References in fastjson's dialect, and the limits on what they expand to."""

import pytest

from ariane.errors import BodyError
from ariane.wire.json.fastjson import parse

QUEUE_KEY = (("brokerName", "b"), ("queueId", 0), ("topic", "T"))
QUEUE_TEXT = '{"brokerName":"b","queueId":0,"topic":"T"}'


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"t":{0:{"a":1}},"r":{"$ref":"$.t[0]"}}', {"t": {0: {"a": 1}}, "r": {"a": 1}}),
        ('{"t":{"0":[1]},"r":{"$ref":"$.t[0]"}}', {"t": {"0": [1]}, "r": [1]}),
        (r'{"%R%g-1":{"a":1},"r":{"$ref":"$.\\%R\\%g\\-1"}}', {"%R%g-1": {"a": 1}, "r": {"a": 1}}),
        ('{"%R%g-1":{"a":1},"r":{"$ref":"$.%R%g-1"}}', {"%R%g-1": {"a": 1}, "r": {"a": 1}}),
        ('[{"a":[1,{}]},{"$ref":"$[0].a[1]"}]', [{"a": [1, {}]}, {}]),
        ('{"q":' + QUEUE_TEXT + ',"t":{{"$ref":"$.q"}:1}}', {"q": dict(QUEUE_KEY), "t": {QUEUE_KEY: 1}}),
        ('{"$ref":1}', {"$ref": 1}),
        ('{"$ref":"$.a","b":1}', {"$ref": "$.a", "b": 1}),
    ],
)
def test_references_are_resolved(text: str, value: object) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    "path", ["$", "$.a", "$.a[0]", "$.nowhere", "$.later", "$.a[9]", "$.n.x", "$.n[0]", "..", "@", "", "$x", "$.a["]
)
def test_a_reference_to_itself_or_to_nothing_is_refused(path: str) -> None:
    with pytest.raises(BodyError, match="the reference"):
        parse(f'{{"n":1,"a":[{{"$ref":"{path}"}}],"later":{{}}}}')


def test_references_to_references_cannot_expand_without_limit() -> None:
    rows = ['"a0":[0,0,0,0,0,0,0,0,0,0]']
    for row in range(1, 20):
        reference = f'{{"$ref":"$.a{row - 1}"}}'
        rows.append(f'"a{row}":[{",".join([reference] * 10)}]')
    with pytest.raises(BodyError, match="too many"):
        parse(f"{{{','.join(rows)}}}")


def test_references_to_references_cannot_nest_without_limit() -> None:
    rows = [f'"a{row}":[{{"$ref":"$.a{row - 1}"}}]' for row in range(1, 40)]
    with pytest.raises(BodyError, match="too deep"):
        parse(f'{{"a0":[],{",".join(rows)}}}')
