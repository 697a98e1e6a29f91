"""Clients for Python against one Ariane broker: throughput of one process, and its CPU time per message."""

import importlib.util
from contextlib import ExitStack
from functools import partial
from importlib.metadata import version

from bench.clients.plan import ClientFailed, ClientPlan, Job, run_client
from bench.load.names import topic_name
from bench.scenarios.pulls import fill
from bench.scenarios.scenario import Cases, Column, Effort, Measured, Scenario
from bench.systems.system import Running

MESSAGES = {
    Job.CONSUME: 100_000,  # first: afterwards the topic also contains what the other jobs have sent
    Job.SEND_ONE_BY_ONE: 10_000,
    Job.SEND_IN_FLIGHT: 50_000,
    Job.SEND_BATCHED: 100_000,
    Job.SEND_NOWAIT: 100_000,
}
ONLY_ARIANE_JOBS = {Job.SEND_NOWAIT}
QUICK_SHARE = 20


class PythonClients(Scenario):
    name = "python-clients"
    title = "Clients for Python, one process, 1 KiB, against one Ariane broker"
    only_ariane = True
    alone = True
    rounds_max = 3
    columns = (
        Column("messages_per_s", "messages/s", ratio=True),
        Column("client_us", "client CPU us", ".1f", ratio=True),
    )

    def begin(self, running: Running, setup: str, effort: Effort, stack: ExitStack) -> Cases:
        share = QUICK_SHARE if effort.is_quick else 1
        fill(running, MESSAGES[Job.CONSUME] // share)
        plans = [
            ClientPlan(
                client=client,
                job=job,
                nameserver=running.nameserver,
                topic=topic_name(0),
                messages=messages // share,
            )
            for job, messages in MESSAGES.items()
            for client in (["ariane"] if job in ONLY_ARIANE_JOBS else installed_clients())
        ]
        return {f"{plan.job}, {plan.client}": partial(_measured, plan) for plan in plans}


def installed_clients() -> list[str]:
    others = ["rocketmq"] if importlib.util.find_spec("rocketmq") else []
    return ["ariane", *others]


def _label(client: str) -> str:
    return "Ariane" if client == "ariane" else f"{client} {version(client)} (C++)"


def _case(job: Job) -> str:
    return "consume" if job is Job.CONSUME else f"send, {job}"


def _measured(plan: ClientPlan) -> Measured:
    """A client that fails is shown in the table with a rate of 0, not omitted."""
    case, label = _case(plan.job), _label(plan.client)
    try:
        result = run_client(plan)
    except ClientFailed as error:
        return Measured(case, {"messages_per_s": 0.0}, label, note=str(error))
    return Measured(case, {"messages_per_s": result.per_second, "client_us": result.cpu_us}, label)
