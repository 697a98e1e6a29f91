"""An event loop in a thread, for programs that have none: one a process, there while a client is open.

Whoever opens a client takes the loop and gives it back at the end; the last one stops it. So a program that has closed
its clients has no thread of ours left.
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
"""Where the thread that waits for the running call takes jobs."""


class LoopThread:
    def __init__(self) -> None:
        self._pid = os.getpid()
        self._ready: Future[asyncio.AbstractEventLoop] = Future()
        self._stop = asyncio.Event()
        # A daemon, because Python waits for all others before it lets anybody close anything.
        self._thread = threading.Thread(target=self._main, name="ariane-loop", daemon=True)
        self._thread.start()
        self._loop = self._ready.result()

    @property
    def is_ours(self) -> bool:
        """False in a forked child, which has a copy of this object and not of the thread."""
        return os.getpid() == self._pid

    def run(self, work: Coroutine[Any, Any, T], look: Callable[[T], U]) -> U:
        """What `look` makes of the result of `work`, both on the loop, while this thread waits.

        Ctrl-C ends the wait and the work.
        """
        inbox: SimpleQueue[Job | None] = SimpleQueue()
        future = self._submit(work, look, inbox)
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
        self, work: Coroutine[Any, Any, T], look: Callable[[T], U], inbox: "SimpleQueue[Job | None]"
    ) -> "Future[U]":
        token = _CALLER.set(inbox)  # the task gets a copy of this thread's context
        whole = _looked_at(work, look)
        try:
            self._check_thread()
            return asyncio.run_coroutine_threadsafe(whole, self._loop)
        except BaseException:
            whole.close()
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


async def _looked_at(work: Coroutine[Any, Any, T], look: Callable[[T], U]) -> U:
    return look(await work)


async def in_calling_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Runs `function` in the thread that waits for the call we are part of: it may hold what no other may touch."""
    inbox = _CALLER.get()
    assert inbox is not None, "only calls through LoopThread.run come here"
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


class _Shared:
    """The loop of this process, and how many clients use it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.thread: LoopThread | None = None
        self.users = 0

    def take(self) -> LoopThread:
        with self.lock:
            if self.thread is None:
                self.thread = LoopThread()
            self.users += 1
            return self.thread

    def give_back(self) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0 and self.thread is not None:
                self.thread.stop()
                self.thread = None


SHARED = _Shared()


def _forget() -> None:
    """In a forked child: the lock may be held by a thread that is not here, and the loop's thread is not here."""
    SHARED.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
