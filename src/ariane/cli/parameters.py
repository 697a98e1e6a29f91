"""Arguments that several commands take."""

import click

from ariane.model.address import Address


def listen_address(context: click.Context, parameter: click.Parameter, text: str | None) -> Address | None:
    """`HOST:PORT`, `[::1]:PORT`, or `:PORT`, which has an empty host and changes only the port."""
    try:
        return None if text is None else Address.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


def name_value_pairs(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is no NAME=VALUE", context, parameter)
        pairs[name] = value
    return pairs
