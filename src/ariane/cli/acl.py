"""`ariane acl`: makes the file of accounts that access control needs."""

import os
import secrets
from pathlib import Path

import click

from ariane.cli.tree import acl
from ariane.errors import ClientError

DEFAULT_FILE = Path("conf/plain_acl.yml")  # as the servers' setting acl_file

_CONTENT = """\
# Accounts for brokers and nameservers with aclEnable=true, in the format of Apache's ACL 1.0. `brokers` is
# Ariane's: names of brokers that the account may register at a nameserver, * for all. Servers read changes
# within seconds. Everybody who reads this file has the secrets: keep it readable by the servers' user only.
accounts:
- accessKey: {admin}
  secretKey: {admin_secret}
  admin: true
- accessKey: {broker}
  secretKey: {broker_secret}
  brokers: ["*"]
"""


@acl.command("init", short_help="Write a file with first accounts and random secrets.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), default=DEFAULT_FILE)
def init(file: Path) -> None:
    """Write a new file of accounts with random secrets for servers with aclEnable=true.

    It has an administrator, for commands, and an account with which brokers register at nameservers. Only you can read
    the file (mode 600), and the secrets are not printed. An existing file is not touched.

    \b
    Examples:
      ariane acl init
      ariane acl init /etc/ariane/plain_acl.yml
    """
    admin, broker = f"admin-{secrets.token_hex(3)}", f"broker-{secrets.token_hex(3)}"
    keys = {"admin_secret": secrets.token_hex(24), "broker_secret": secrets.token_hex(24)}
    _write(file, _CONTENT.format(admin=admin, broker=broker, **keys))
    click.echo(f"{file} is written, with the accounts {admin} and {broker}. In the settings files of all servers:")
    click.echo(f"  aclEnable=true\n  rocketmq.acl.plain.file={file.absolute()}")
    click.echo("Of brokers also, with the secret from that file:")
    click.echo(f"  namesrvAccessKey={broker}\n  namesrvSecretKey=...")
    click.echo("For commands, in the table [client] of ~/.config/ariane/NAME.toml (then: --profile NAME):")
    click.echo(f'  access_key = "{admin}"\n  secret_key = "..."')


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ClientError(f"{file} exists: edit it, or choose another name") from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(descriptor)
