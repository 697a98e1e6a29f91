"""Writes docs/cli.md from the help of the commands. With --check it only says whether the page is up to date."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from ariane.cli.main import Invocation, ariane
from ariane.cli.tree import admin

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
WIDTH = 100

HEAD = """\
# The command line

<!-- Made by scripts/cli_docs.py from the help of the commands: change it there. -->

Every command that talks to a cluster takes `-n HOST:PORT` (several nameservers are joined by `;`) or `--profile NAME`.
Without them it uses `$NAMESRV_ADDR`, then an `ariane up` that runs on `./.ariane`, then `127.0.0.1:9876`. A profile is
a file, `~/.config/ariane/NAME.toml`, with settings of [ClientSettings](client.md):

```toml
[client]
nameservers = "10.0.0.1:9876;10.0.0.2:9876"
access_key = "operator"
secret_key = "a-long-secret"
```

`-o table|json|jsonl|csv` chooses how results are printed. On a terminal a table is cut at its right edge, except the
one message of `msg get` and `msg explain`; into a file or a pipe nothing is cut. Results go to stdout and everything
else to stderr. A value that nobody knows is empty in a table and `null` in JSON, and never 0. A result with a part
missing says which part, on stderr.

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | negative result: not found, not done, `--at-most` exceeded |
| 2 | usage, or a setting |
| 3 | somebody could not be reached, or a part of the result is missing for that reason |
| 4 | a server refused |
| 70 | a bug in Ariane |
| 130 | Ctrl-C |

`send` and `tail` end with 3 as well when no broker has the topic, as clients do: it may come, and then they work.

Shell completion: `eval "$(_ARIANE_COMPLETE=bash_source ariane)"` (or `zsh_source`, `fish_source`).
"""

MQADMIN = """\
## mqadmin

`ariane admin NAME` runs the commands of Apache RocketMQ's mqadmin 4.7.1 under their own names and option letters, and
so does the program `mqadmin` that is installed beside `ariane`. `-n` and `-h` are known to all of them. An option in
bold is required; where there are both `-b` and `-c` for a place, one of them is. With access control, the account comes
from `$ROCKETMQ_HOME/conf/tools.yml` as with Apache's, or from `$ARIANE_PROFILE`.

They print what Apache's mqadmin 4.9.8 prints for the same broker, to the column, so that scripts which cut and grep
go on to work; `tests/cli/mqadmin/test_format.py` holds it fixed. They differ in this:

- Exit codes are those above, and an error is one sentence on stderr: Apache's prints a stack trace and exits with 0.
- Where a group has no offset, or nobody knows a number, `unknown` stands and not 0. `brokerConsumeStats` also shows
  queues of which nothing was consumed yet, with `N/A` for the time.
- Names longer than their column are printed whole; lists are sorted by name. Secrets are not shown.
- `topicRoute` is JSON that parsers take: Apache's writes `{0:"127.0.0.1:10911"` without quotes.
- `queryMsgById`, `queryMsgByOffset` and `queryMsgByUniqueKey` print the body too, below the path of its file, which is
  `rocketmq/msgbodys/ID` in `$TMPDIR` (or `/tmp`) as with Apache's. A group that is offline but past the message is told
  as `CONSUMED`.
- `printMsg`, `printMsgByQueue` and `consumeMessage` print a message's own properties, without the `MIN_OFFSET` and
  `MAX_OFFSET` that Java's client adds. `consumeMessage` moves no offsets.
- `updateAclConfig` does not end with the line that is the name of a Java object. Our brokers tell
  `clusterAclConfigVersion` the name of their file, but not where it lies.

| command | there | options | what it does |
| --- | --- | --- | --- |
"""


def page() -> str:
    root = click.Context(ariane, info_name="ariane", max_content_width=WIDTH, terminal_width=WIDTH, obj=Invocation())
    root.help_option_names = ["-h", "--help"]
    sections = [HEAD, *_sections(ariane, root), MQADMIN + "\n".join(_mqadmin_rows(root))]
    return "\n".join(sections) + "\n"


def _sections(group: click.Group, context: click.Context) -> Iterator[str]:
    for name in sorted(group.list_commands(context)) if group is ariane else group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        below = click.Context(command, parent=context, info_name=name)
        yield f"## {below.command_path}\n" if group is ariane else f"### {below.command_path}\n"
        yield f"```text\n{_help(command, below)}\n```\n"
        if isinstance(command, click.Group) and command is not admin:
            yield from _sections(command, below)


def _help(command: click.Command, context: click.Context) -> str:
    """The names of mqadmin's commands are in their own table."""
    text = command.get_help(context)
    return re.sub(r"\n\nCommands:\n.*", "", text, flags=re.DOTALL).rstrip() if command is admin else text.rstrip()


def _mqadmin_rows(root: click.Context) -> Iterator[str]:
    from ariane.cli.mqadmin.commands import MISSING

    context = click.Context(admin, parent=root, info_name="admin")
    for name in sorted(admin.list_commands(context)):
        command = admin.get_command(context, name)
        assert command is not None, name
        options = [option for option in command.params if isinstance(option, click.Option) and option.name != "namesrv"]
        letters = " ".join(
            f"**`{option.opts[0]}`**" if option.required else f"`{option.opts[0]}`" for option in options
        )
        doc = (command.help or "").partition("\n\n")[0]
        told = doc.replace("|", "\\|")
        yield f"| `{name}` | {'no' if name in MISSING else 'yes'} | {letters} | {told} |"


def main() -> int:
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    fresh = PAGE.exists() and PAGE.read_text(encoding="utf-8") == page()
    print("docs/cli.md is up to date" if fresh else "docs/cli.md is stale: run python scripts/cli_docs.py")
    return 0 if fresh else 1


if __name__ == "__main__":
    sys.exit(main())
