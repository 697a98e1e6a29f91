"""Every system that Ariane can be compared with, by its name for --peers."""

from bench.systems.apache import Apache
from bench.systems.nats import Nats
from bench.systems.redis import Redis
from bench.systems.system import System

APACHE_5 = "5.3.3"

_ALL: tuple[System, ...] = (Apache(), Nats(), Redis(), Apache(APACHE_5))
PEERS = {peer.key: peer for peer in _ALL}
DEFAULT_PEERS = ("apache", "nats", "redis")
