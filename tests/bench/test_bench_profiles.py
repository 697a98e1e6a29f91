"""What is made of py-spy's samples."""

from bench.profiles import shares


def test_a_function_has_a_share_of_its_own_and_one_with_what_it_calls() -> None:
    stacks = ["main (a.py);run (b.py) 30", "main (a.py);run (b.py);pack (c.py) 60", "main (a.py) 10"]
    assert [" ".join(line.split()) for line in shares(stacks)] == [
        "60.0% 60.0% pack (c.py)",
        "30.0% 90.0% run (b.py)",
        "10.0% 100.0% main (a.py)",
    ]


def test_a_thread_without_work_does_not_count() -> None:
    (line,) = shares(["main (a.py) 5", "_bootstrap (threading.py);_worker (concurrent/futures/thread.py) 95"])
    assert line.split() == ["100.0%", "100.0%", "main", "(a.py)"]


def test_a_recursive_function_counts_once_for_each_sample() -> None:
    (line,) = shares(["walk (a.py);walk (a.py) 5"])
    assert line.split() == ["100.0%", "100.0%", "walk", "(a.py)"]
