"""Records golden frames between real Apache RocketMQ 4.9 clients, broker and nameserver, by a proxy in between.

    .venv/bin/python scripts/golden/record_frames.py tests/golden/frames-4.9.8.jsonl.gz

Needs a JDK 17, Maven, Go and Node (see interop/); takes about four minutes. Everything is recorded twice: with JSON
headers and with binary ones ("ROCKETMQ" serialisation), each time by clients and servers that both use them.

One JSON object a line: client and server (program-version), direction, kind (req, resp, oneway), answers_code (of
responses: the code of the request), peer (whether the server is a nameserver or a broker) and frame, the whole frame in
hex with its length field. Signed requests use access key goldenAccess and secret key goldenSecret; those of the Node
client nodeAccess and nodeSecret.
"""

import asyncio
import gzip
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from interop.apache import CLIENT_VERSION, BrokerPlan, Serialisation, compile_java, fetch, java, start_broker
from interop.other_clients import run_go, run_node
from interop.processes import InteropError, exit_on_sigterm, wait_until
from scripts.golden.frames import Recorded, choose
from scripts.golden.leaks import find_leaks
from scripts.golden.stage import Stage, set_stage

HERE = Path(__file__).resolve().parent
# The slave is needed for requests that only it sends: compressed registrations, data version queries, copies of tables.
SLAVE_SETTINGS = {
    "brokerId": "1",
    "brokerRole": "SLAVE",
    "compressedRegister": "true",
    "forceRegister": "false",
    "registerNameServerPeriod": "10000",
}
QUERY_DATA_VERSION = 322
SLAVE_CODES = {21, 43, 45, 103, 201, QUERY_DATA_VERSION}
MESSAGES = 5
PLAIN_SEND = {
    "org.apache.rocketmq.client.sendSmartMsg": "false",
    "com.rocketmq.sendMessageWithVIPChannel": "true",
}


def play(stage: Stage, classpath: str) -> None:
    """Runs in a thread: the proxies need the event loop."""
    with stage.servers():
        drive(stage, classpath, "all", {})
        drive(stage, classpath, "plain", PLAIN_SEND)
        if stage.serialisation == "JSON":
            # These two choose their serialisation themselves, and choose JSON.
            for client in (run_go, run_node):
                print(client(stage.nameserver, "GoldenClient", MESSAGES, stage.work).stdout)
        slave = BrokerPlan(nameserver=stage.nameserver, port=stage.slave_port, settings=SLAVE_SETTINGS)
        with start_broker(slave, stage.work / "slave", stage.serialisation):
            wait_until(lambda: slave_is_done(stage.recorded), "the slave's requests", 90.0)


def slave_is_done(recorded: list[Recorded]) -> bool:
    """It has sent every request, and got both responses to its data version query."""
    responses = [item for item in recorded if item.client.startswith("broker-") and item.answers_code]
    versions = {item.header.fields.get("changed") for item in responses if item.answers_code == QUERY_DATA_VERSION}
    return {item.answers_code for item in responses} >= SLAVE_CODES and versions >= {"true", "false"}


def drive(stage: Stage, classpath: str, scene: str, properties: dict[str, str]) -> None:
    done = java(
        "Driver",
        scene,
        stage.nameserver,
        "GoldenCluster",
        "golden-a",
        stage.broker,
        classpath=classpath,
        home=stage.work / "client",
        properties={"rocketmq.serialize.type": stage.serialisation, **properties},
        timeout_seconds=300.0,
    )
    print(done.stdout)
    if done.returncode:
        raise InteropError(f"the driver failed:\n{done.stdout}\n{done.stderr}")


async def record(serialisation: Serialisation) -> list[Recorded]:
    recorded: list[Recorded] = []
    with tempfile.TemporaryDirectory(prefix="ariane-golden-") as directory:
        work = Path(directory)
        stage = set_stage(serialisation, work, recorded)
        classes = compile_java(sorted(HERE.glob("*.java")), fetch("client", CLIENT_VERSION), work / "classes")
        async with stage.proxies():
            await asyncio.to_thread(play, stage, classes)
    return recorded


def write(recorded: list[Recorded], target: Path) -> None:
    kept = choose(recorded)
    leaks = find_leaks(item.frame for item in kept)
    if leaks:
        raise InteropError(f"the frames contain names of this machine: {sorted(leaks)}")
    text = "".join(item.line() + "\n" for item in kept)
    # A fixed time stamp, so that equal frames make equal files.
    target.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{len(kept)} frames in {target} ({target.stat().st_size} bytes)")


async def main() -> list[Recorded]:
    return [*await record("JSON"), *await record("ROCKETMQ")]


if __name__ == "__main__":
    exit_on_sigterm()
    write(asyncio.run(main()), Path(sys.argv[1]))
