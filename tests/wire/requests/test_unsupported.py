"""Every request code is declared, or has a documented reason why it is not supported."""

import ariane.wire.requests  # noqa: F401 - fills REQUESTS
from ariane.wire.codes import RequestCode
from ariane.wire.exchange import REQUESTS
from ariane.wire.requests.unsupported import UNDECLARED, UNSERVED


def test_every_code_is_declared_or_has_a_reason_and_never_both() -> None:
    for code in RequestCode:
        assert (code in REQUESTS) != (code in UNDECLARED), code.name


def test_only_declared_requests_are_listed_as_unserved() -> None:
    assert set(REQUESTS) >= set(UNSERVED)


def test_reasons_are_sentences_for_users() -> None:
    for reason in (*UNDECLARED.values(), *UNSERVED.values()):
        assert len(reason) > 20
        assert not reason.endswith(".")
