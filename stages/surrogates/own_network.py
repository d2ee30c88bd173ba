"""A client's own network: a set that is matched at fresh weights does not depend on which network the others have."""

from __future__ import annotations

from artifacts.errors import UsageError
from artifacts.formats.plain_data import parse_yaml
from stages.nets.params import Network
from stages.registry import NETWORKS


def own_network(text: str) -> Network:
    """The network that `--network` names: an `--arch` of `init-model`, after a colon its parameters.

    `lenet5`, or `convnet:width=16,depth=2`.
    """
    arch, colon, rest = text.partition(":")
    values: dict[str, object] = {"arch": arch.strip()}
    for word in rest.split(",") if colon else ():
        name, equals, value = word.partition("=")
        if not equals:
            raise UsageError(
                f"--network {text}: after the colon write name=value, with commas between; found {word!r}."
            )
        try:
            values[name.strip()] = parse_yaml(value)
        except ValueError as error:
            raise UsageError(f"--network {text}: {word!r} is no value: {error}.") from error
    try:
        made: Network = NETWORKS.from_mapping(values)
    except ValueError as error:
        raise UsageError(f"--network {text}: {error}.") from error
    if made.plugin is not None:
        raise UsageError(
            f"--network {text}: it is by the plug-in {made.plugin}, and the set would not say so: nobody could "
            "compute it again. Take a network of fedsynth's, or the model's own."
        )
    return made
