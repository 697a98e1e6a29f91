"""Delayed messages: after a delay level, or at a given time."""

import time
from datetime import UTC, datetime, timedelta

from ariane import Received
from examples.demo_common import DemoCluster, MessageCollector, Result, bodies, consuming


class TimedCollector(MessageCollector):
    """Records how late each message is. Producer and consumer run in this process, so they have the same clock."""

    def __init__(self) -> None:
        super().__init__()
        self.due_ms: dict[bytes, float] = {}
        self.late_ms: list[float] = []

    async def collect(self, message: Received) -> None:
        self.late_ms.append(time.time() * 1000 - self.due_ms[message.body])
        await super().collect(message)

    def result(self) -> Result:
        ok = self.count == len(self.due_ms) and min(self.late_ms) >= 0
        late = self.late_ms
        text = f"never early; {min(late):.0f} to {max(late):.0f} ms late" if late else "no message arrived"
        return Result(len(self.due_ms), self.count, text, ok)


async def delay_level(cluster: DemoCluster) -> Result:
    """Delay levels are set at the broker (messageDelayLevel); here level 1 is one second."""
    topic = await cluster.topic("delay-level")
    collector = TimedCollector()
    async with consuming(cluster, topic, handler=collector.collect):
        for body in bodies(5):
            collector.due_ms[body] = time.time() * 1000 + 1000
            await cluster.producer.send(topic, body, delay_level=1)
        await collector.wait_for(5)
    return collector.result()


async def deliver_at(cluster: DemoCluster) -> Result:
    """A delivery time to the millisecond, independent of delay levels."""
    topic = await cluster.topic("deliver-at")
    collector = TimedCollector()
    async with consuming(cluster, topic, handler=collector.collect):
        for number, body in enumerate(bodies(5)):
            moment = datetime.now(UTC) + timedelta(seconds=1, milliseconds=130 * number)
            collector.due_ms[body] = int(moment.timestamp() * 1000)
            await cluster.producer.send(topic, body, deliver_at=moment)
        await collector.wait_for(5)
    return collector.result()
