"""Where topics are: routes for clients, lists for administrators."""

from dataclasses import dataclass

from ariane.errors import RequestFailed
from ariane.model.topic import TopicSysFlag
from ariane.nameserver.route_answers import RouteAnswers
from ariane.nameserver.route_table import RouteTable
from ariane.rpc.handlers import Call, Encoded, handles
from ariane.wire.codes import ResponseCode, Version
from ariane.wire.fields import Answer
from ariane.wire.requests.routes import ClusterAnswer, GetCluster, GetRoute
from ariane.wire.requests.topics import (
    DeleteTopicInNameserver,
    ListSystemTopics,
    ListTopics,
    ListTopicsByCluster,
    ListUnitSubscribedPlainTopics,
    ListUnitSubscribedTopics,
    ListUnitTopics,
    TopicList,
    TopicListAnswer,
)

_FOUND = Answer()


@dataclass(frozen=True)
class RouteHandlers:
    routes: RouteTable
    answers: RouteAnswers

    @handles(GetRoute)
    def route(self, ask: GetRoute, call: Call) -> Encoded:
        standard = call.command.version >= Version.V4_9_4 or bool(ask.accept_standard_json_only)
        text = self.answers.text(ask.topic, standard=standard)
        if text is None:
            raise RequestFailed(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {ask.topic[:255]}. No live broker has registered "
                "it here: create the topic, or wait for its broker's next registration (30 s at most)",
            )
        return Encoded(_FOUND, text)

    @handles(GetCluster)
    def cluster(self, ask: GetCluster, call: Call) -> ClusterAnswer:
        return ClusterAnswer(body=self.routes.cluster_map())

    @handles(ListTopics)
    def topics(self, ask: ListTopics, call: Call) -> TopicListAnswer:
        return _names(self.routes.topics())

    @handles(ListTopicsByCluster)
    def topics_of_cluster(self, ask: ListTopicsByCluster, call: Call) -> TopicListAnswer:
        return _names(self.routes.topics_of_cluster(ask.cluster))

    @handles(ListSystemTopics)
    def system_topics(self, ask: ListSystemTopics, call: Call) -> TopicListAnswer:
        topics, broker = self.routes.system_topics()
        return TopicListAnswer(body=TopicList(topic_list=topics, broker_addr=broker))

    @handles(ListUnitTopics)
    def unit_topics(self, ask: ListUnitTopics, call: Call) -> TopicListAnswer:
        return _names(self.routes.flagged_topics(TopicSysFlag.UNIT))

    @handles(ListUnitSubscribedTopics)
    def unit_subscribed_topics(self, ask: ListUnitSubscribedTopics, call: Call) -> TopicListAnswer:
        return _names(self.routes.flagged_topics(TopicSysFlag.UNIT_SUBSCRIPTION))

    @handles(ListUnitSubscribedPlainTopics)
    def unit_subscribed_plain_topics(self, ask: ListUnitSubscribedPlainTopics, call: Call) -> TopicListAnswer:
        return _names(self.routes.flagged_topics(TopicSysFlag.UNIT_SUBSCRIPTION, lacks=TopicSysFlag.UNIT))

    @handles(DeleteTopicInNameserver)
    def delete_topic(self, ask: DeleteTopicInNameserver, call: Call) -> Answer:
        self.routes.delete_topic(ask.topic, ask.cluster_name)
        return Answer()


def _names(topics: list[str]) -> TopicListAnswer:
    return TopicListAnswer(body=TopicList(topic_list=topics))
