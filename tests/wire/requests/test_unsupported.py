"""No request code is forgotten: each is declared, or a reason says why not."""

import ariane.wire.requests  # noqa: F401 - fills REQUESTS
from ariane.wire.codes import RequestCode
from ariane.wire.exchange import REQUESTS, ServedBy
from ariane.wire.requests.unsupported import UNDECLARED, UNSERVED, UNSERVED_ROOMS


def test_every_code_is_declared_or_has_a_reason_and_never_both() -> None:
    for code in RequestCode:
        assert (code in REQUESTS) != (code in UNDECLARED), code.name


def test_only_declared_requests_can_be_refused_one_by_one() -> None:
    assert set(REQUESTS) >= set(UNSERVED)


def test_all_three_servers_are_there() -> None:
    assert not set(ServedBy) & set(UNSERVED_ROOMS)


def test_reasons_are_sentences_for_users() -> None:
    for reason in (*UNDECLARED.values(), *UNSERVED.values(), *UNSERVED_ROOMS.values()):
        assert len(reason) > 20
        assert not reason.endswith(".")
