"""Ctrl-C during a call into an engine."""

import signal
import threading

import pytest

from ariane.sql.duckdb_engine import Interruptible


def test_ctrl_c_ends_the_running_call() -> None:
    interrupted = threading.Event()

    def work() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        assert interrupted.wait(60)

    with pytest.raises(KeyboardInterrupt), Interruptible(interrupted.set) as engine:
        engine.call(work)
    assert interrupted.is_set()


def test_results_and_errors_come_back_as_they_are() -> None:
    with Interruptible(lambda: None) as engine:
        assert engine.call(lambda: 42) == 42
        with pytest.raises(ZeroDivisionError):
            engine.call(lambda: 1 // 0)
