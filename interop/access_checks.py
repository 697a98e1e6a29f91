"""Checks of Apache's brokers at a nameserver of Ariane's that has access control."""

import json
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from interop.apache import start_broker
from interop.broker.servers import COMMAND
from interop.broker_checks import MASTER_SETTINGS, plan_broker
from interop.processes import LOOPBACK, free_port, running
from interop.report import Report, expect, expect_in

NAME = "interop-a"
SIGNING_VERSION = "5.4.0"
ACCOUNTS = f"""
accounts:
- {{accessKey: broker1, secretKey: secret-of-broker, brokers: [{NAME}]}}
"""
WHITE_LIST = f"globalWhiteRemoteAddresses: [{LOOPBACK}]\n"
_WAIT_S = 30


@dataclass(frozen=True, slots=True)
class AccessChecks:
    work: Path

    def add_to(self, report: Report) -> None:
        report.check("broker without an account is refused, with the cause", self.refused)
        report.check("broker on the white list registers", self.white_listed)
        report.check(f"broker of {SIGNING_VERSION} signs its registration", self.signed)

    def refused(self) -> None:
        log = self._registered(self.work / "refused", ACCOUNTS, expected=False)
        expect_in("REGISTER_BROKER (103) is not signed", log)

    def white_listed(self) -> None:
        self._registered(self.work / "white", WHITE_LIST + ACCOUNTS, expected=True)

    def signed(self) -> None:
        home = self.work / "signed"
        provider = "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider"
        settings = {
            "authenticationEnabled": "true",
            "authenticationMetadataProvider": provider,
            "authConfigPath": str(home / "auth"),
            "innerClientAuthenticationCredentials": json.dumps(
                {"accessKey": "broker1", "secretKey": "secret-of-broker"}
            ),
        }
        self._registered(home, ACCOUNTS, expected=True, settings=settings, version=SIGNING_VERSION)

    def _registered(
        self,
        home: Path,
        accounts: str,
        *,
        expected: bool,
        settings: Mapping[str, str] | None = None,
        version: str = "4.9.7",
    ) -> str:
        """Starts a nameserver and a broker; fails unless the broker is registered as `expected`. Returns the log."""
        home.mkdir(parents=True)
        file, conf, log = home / "accounts.yml", home / "namesrv.conf", home / "namesrv.log"
        file.write_text(accounts)
        conf.write_text(f"aclEnable=true\nrocketmq.acl.plain.file={file}\n")
        address = f"{LOOPBACK}:{free_port()}"
        plan = plan_broker(address, NAME, {**MASTER_SETTINGS, **(settings or {})})
        command = [*COMMAND, "namesrv", "-c", str(conf), "--listen", address]
        with running(command, ready="ready", log=log), start_broker(plan, home / "broker", version=version):
            found, deadline = False, time.monotonic() + _WAIT_S
            while time.monotonic() < deadline:
                found = NAME in _cluster(address)
                if found or "access refused" in log.read_text():
                    break
                time.sleep(0.5)
            expect(found == expected, f"registered: {found}, expected: {expected}\n{log.read_text()[-1000:]}")
        return log.read_text()


def _cluster(address: str) -> str:
    done = subprocess.run([*COMMAND, "cluster", "-n", address], check=False, capture_output=True, text=True)
    return done.stdout
