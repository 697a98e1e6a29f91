"""Route answers as bytes, encoded when a route changes and not when it is asked for."""

from dataclasses import dataclass

from ariane.nameserver.key_values import ORDER_TOPIC_CONFIG, KeyValues
from ariane.nameserver.route_table import RouteTable
from ariane.wire.route_text import encode_route


@dataclass(frozen=True, slots=True)
class _Text:
    version: int
    order_conf: str | None
    data: bytes


class RouteAnswers:
    """One text per topic and JSON form that was asked for. At the limit all are dropped, those of lost topics too."""

    def __init__(self, routes: RouteTable, key_values: KeyValues, *, with_order_conf: bool, texts_max: int) -> None:
        self._routes = routes
        self._key_values = key_values
        self._with_order_conf = with_order_conf
        self._texts_max = texts_max
        self._texts: dict[tuple[str, bool], _Text] = {}

    def text(self, topic: str, *, standard: bool) -> bytes | None:
        """The JSON text of the topic's route, or None when there is none."""
        order_conf = self._key_values.get(ORDER_TOPIC_CONFIG, topic) if self._with_order_conf else None
        version = self._routes.route_version(topic)
        known = self._texts.get((topic, standard))
        if known is not None and known.version == version and known.order_conf == order_conf:
            return known.data
        return self._encode(topic, standard, version, order_conf)

    def _encode(self, topic: str, standard: bool, version: int, order_conf: str | None) -> bytes | None:
        route = self._routes.route(topic, order_conf)
        if route is None:
            self._texts.pop((topic, standard), None)
            return None
        if len(self._texts) >= self._texts_max:
            self._texts.clear()
        data = encode_route(route, standard=standard)
        self._texts[topic, standard] = _Text(version, order_conf, data)
        return data
