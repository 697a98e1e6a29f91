"""An event loop in a thread, for synchronous programs: one per process, running while a client is open.

Each open client holds a reference to the loop; the last one stops it. So a program that has closed its clients has no
thread left over.
"""

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from queue import SimpleQueue
from typing import Any, TypeVar

from ariane.errors import ClientClosed, ClientError

T = TypeVar("T")
U = TypeVar("U")

Job = Callable[[], None]

_CALLER: contextvars.ContextVar["SimpleQueue[Job | None] | None"] = contextvars.ContextVar("caller", default=None)
"""The job queue of the thread that waits for the current call."""


class LoopThread:
    def __init__(self) -> None:
        self._pid = os.getpid()
        self._ready: Future[asyncio.AbstractEventLoop] = Future()
        self._stop = asyncio.Event()
        # A daemon, because Python waits for all other threads before exit functions can close clients.
        self._thread = threading.Thread(target=self._main, name="ariane-loop", daemon=True)
        self._thread.start()
        self._loop = self._ready.result()

    @property
    def is_in_this_process(self) -> bool:
        """False in a forked child, which has a copy of this object but not of the thread."""
        return os.getpid() == self._pid

    def run(self, work: Coroutine[Any, Any, T], convert: Callable[[T], U]) -> U:
        """Runs `work`, and `convert` on its result, on the loop, while this thread waits.

        Ctrl-C ends the wait and the work.
        """
        inbox: SimpleQueue[Job | None] = SimpleQueue()
        future = self._submit(work, convert, inbox)
        future.add_done_callback(lambda _: inbox.put(None))
        try:
            while (job := inbox.get()) is not None:
                job()
            return future.result()
        except CancelledError:
            raise ClientClosed("the client was closed while this call waited") from None
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _submit(
        self, work: Coroutine[Any, Any, T], convert: Callable[[T], U], inbox: "SimpleQueue[Job | None]"
    ) -> "Future[U]":
        token = _CALLER.set(inbox)  # the task gets a copy of this thread's context
        task = _converted(work, convert)
        try:
            self._check_thread()
            return asyncio.run_coroutine_threadsafe(task, self._loop)
        except BaseException:
            task.close()
            work.close()
            raise
        finally:
            _CALLER.reset(token)

    def _check_thread(self) -> None:
        if threading.current_thread() is self._thread:
            raise ClientError(
                "a blocking call on the event loop's own thread would wait for itself: make it from a plain function, "
                "which runs in a thread, or use the classes of `ariane` instead of `ariane.sync` in coroutines"
            )

    def _main(self) -> None:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._ready.set_result(asyncio.get_running_loop())
        await self._stop.wait()


async def _converted(work: Coroutine[Any, Any, T], convert: Callable[[T], U]) -> U:
    return convert(await work)


async def in_calling_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Runs `function` in the thread that waits for the current call: its objects may belong to that thread."""
    inbox = _CALLER.get()
    assert inbox is not None, "only to be used in calls through LoopThread.run"
    done: Future[T] = Future()

    def job() -> None:
        try:
            done.set_result(function(*arguments))
        except Exception as error:
            done.set_exception(error)

    inbox.put(job)
    return await asyncio.wrap_future(done)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class _SharedLoop:
    """The loop of this process, and how many clients use it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.thread: LoopThread | None = None
        self.users = 0

    def acquire(self) -> LoopThread:
        with self.lock:
            if self.thread is None:
                self.thread = LoopThread()
            self.users += 1
            return self.thread

    def release(self) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0 and self.thread is not None:
                self.thread.stop()
                self.thread = None


SHARED = _SharedLoop()


def _reset_after_fork() -> None:
    """In a forked child: the loop's thread does not exist, and the lock may be held by a thread that does not exist."""
    SHARED.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
