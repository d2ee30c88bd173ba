"""YAML's safe loader and dumper, narrowed to JSON's types. Apart from `plain_data`, which loads it for YAML alone."""

from __future__ import annotations

from typing import Any

import yaml

from artifacts.limits import DIGITS

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C one is there wherever PyYAML was built with libyaml
_NOT_PLAIN = {f"tag:yaml.org,2002:{name}" for name in ("timestamp", "merge", "value")}
_MOST_LETTERS = 2 * DIGITS  # a float has a sign, a point and an exponent


class PlainLoader(_Base):  # type: ignore[misc]
    """A date is a string; a key is a string and occurs once."""

    yaml_implicit_resolvers = {  # noqa: RUF012  (as PyYAML has it)
        first: [(tag, pattern) for tag, pattern in found if tag not in _NOT_PLAIN]
        for first, found in _Base.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            where = f"line {key.start_mark.line + 1}"
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                raise ValueError(f"{where}: the key {getattr(key, 'value', '?')!r} is not a string; put it in quotes")
            if key.value in seen:
                raise ValueError(f"{where}: the key {key.value!r} occurs twice")
            seen.add(key.value)
        found: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return found

    def construct_number(self, node: yaml.ScalarNode) -> Any:
        if len(node.value) > _MOST_LETTERS:
            raise ValueError(f"line {node.start_mark.line + 1}: a number of {len(node.value):,} letters")
        build = self.construct_yaml_int if node.tag.endswith(":int") else self.construct_yaml_float
        return build(node)


for _kind in ("int", "float"):
    PlainLoader.add_constructor(f"tag:yaml.org,2002:{_kind}", PlainLoader.construct_number)


class PlainDumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  (as PyYAML calls it)
        return True
