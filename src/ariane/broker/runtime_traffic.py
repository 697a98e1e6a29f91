"""What went through the broker, under the names of runtime info (GET_BROKER_RUNTIME_INFO)."""

from ariane.broker.counters import Counters
from ariane.broker.statistics import Statistics
from ariane.broker.tallies import Histogram

# Apache's classes of the time that a put took, and the upper bound of each in seconds.
_PUT_TIMES = (
    ("[<=0ms]", 0.001),
    ("[0~10ms]", 0.01),
    ("[10~50ms]", 0.05),
    ("[50~100ms]", 0.1),
    ("[100~200ms]", 0.2),
    ("[200~500ms]", 0.5),
    ("[500ms~1s]", 1.0),
    ("[1~2s]", 2.0),
    ("[2~3s]", 3.0),
    ("[3~4s]", 4.0),
    ("[4~5s]", 5.0),
    ("[5~10s]", 10.0),
)


def traffic(statistics: Statistics) -> dict[str, object]:
    counters, mornings = statistics.counters, statistics.rates.mornings
    return {
        **statistics.rates.texts(),
        **_puts(counters),
        "getMessageEntireTimeMax": round(counters.cold_read_s.largest * 1000),
        "msgPutTotalYesterdayMorning": mornings.yesterday[0],
        "msgPutTotalTodayMorning": mornings.today[0],
        "msgPutTotalTodayNow": counters.messages_in,
        "msgGetTotalYesterdayMorning": mornings.yesterday[1],
        "msgGetTotalTodayMorning": mornings.today[1],
        "msgGetTotalTodayNow": counters.messages_out,
    }


def _puts(counters: Counters) -> dict[str, object]:
    total = counters.messages_in
    return {
        "putMessageTimesTotal": total,
        "putMessageSizeTotal": counters.bytes_in,
        "putMessageAverageSize": counters.bytes_in / max(1, total),
        "putMessageFailedTimes": counters.rejected_sends.total(),
        "putMessageEntireTimeMax": round(counters.append_s.largest * 1000),
        "putMessageDistributeTime": _distribution(counters.append_s),
    }


def _distribution(times: Histogram) -> str:
    below = 0
    words = []
    for name, bound in _PUT_TIMES:
        up_to = times.up_to(bound)
        words.append(f"{name}:{up_to - below}")
        below = up_to
    return " ".join([*words, f"[10s~]:{times.count - below}"])
