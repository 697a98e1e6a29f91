"""VIEW_BROKER_STATS_DATA: how much came of one thing in the last minute, hour and day (`mqadmin statsAll`)."""

from dataclasses import dataclass

from ariane.broker.statistics import Statistics
from ariane.broker.windows import Recent
from ariane.errors import RequestFailed
from ariane.rpc.handlers import Call, handles
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.runtime import BrokerStats, BrokerStatsAnswer, GetBrokerStats, StatsItem

_BYTES = "_SIZE"


@dataclass(frozen=True)
class StatsHandlers:
    statistics: Statistics

    @handles(GetBrokerStats)
    def stats(self, ask: GetBrokerStats, call: Call) -> BrokerStatsAnswer:
        found = self.statistics.find(ask.stats_name, ask.stats_key)
        if found is None:
            raise self._missing(ask)
        minute, hour, day = (_item(recent, in_bytes=ask.stats_name.endswith(_BYTES)) for recent in found)
        return BrokerStatsAnswer(body=BrokerStats(stats_minute=minute, stats_hour=hour, stats_day=day))

    def _missing(self, ask: GetBrokerStats) -> RequestFailed:
        """In Apache's words, which mqadmin takes for "nothing yet"; then why."""
        names = self.statistics.names()
        why = (
            "nothing was counted under this key"
            if ask.stats_name in names
            else f"what is counted is {', '.join(names)}"
        )
        return RequestFailed(
            ResponseCode.SYSTEM_ERROR,
            f"The stats <{ask.stats_name[:255]}> <{ask.stats_key[:511]}> not exist: {why}",
        )


def _item(recent: Recent, *, in_bytes: bool) -> StatsItem:
    amount = recent.bytes if in_bytes else recent.messages
    return StatsItem(sum=amount, tps=amount / recent.seconds, avgpt=amount / recent.times if recent.times > 0 else 0.0)
