"""YAML as configs read it, from files and from the command line alike."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import yaml

from variants.errors import ConfigError

DEEPEST = 30  # levels of a config


class _Yaml(yaml.SafeLoader):
    """YAML whose numbers are what they look like: 1e-4 is one, and 010 and 1:30 (there 8 and 90) are none."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {
        first: [(tag, pattern) for tag, pattern in known if tag.rpartition(":")[2] not in ("int", "float", "timestamp")]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """A mapping, in which no key comes twice."""
        keys = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        for (key, _), value in zip(node.value, keys, strict=False):
            if keys.count(value) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"{value!r} is there twice", key.start_mark)
        return super().construct_mapping(node, deep)


for _tag, _pattern in (
    ("int", r"[-+]?(0|[1-9][0-9_]*|0x[0-9a-fA-F]+)"),
    ("float", r"[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9]+|[0-9][0-9_]*(?=[eE]))([eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan"),
):
    _Yaml.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"({_pattern})$"), list("-+.0123456789"))


_NESTED = object()


def _too_deep(value: Any) -> bool:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(DEEPEST):
        inner = [v for outer in level for v in (outer.values() if isinstance(outer, dict) else outer)]
        level = list({id(v): v for v in inner if isinstance(v, dict | list)}.values())
        if not level:
            return False
    return True


def read_yaml(text: str) -> dict[Any, Any]:
    """Read a mapping.

    Raises:
        ConfigError: It is no YAML, no mapping, or nested too deeply; with the line.
    """
    try:
        content = yaml.load(text, _Yaml) if text.strip() else {}
    except RecursionError:
        content = _NESTED
    except ValueError as error:  # of Python: a number of thousands of digits
        raise ConfigError([str(error).splitlines()[0]]) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f"line {mark.line + 1}: " if mark else ""
        raise ConfigError([f"{at}{getattr(error, 'problem', None) or str(error).splitlines()[0]}"]) from None
    if content is _NESTED or _too_deep(content):
        raise ConfigError([f"nested in itself, or more than {DEEPEST} deep"])
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError([f"expected a mapping, got {content!r}"])
    return {key if isinstance(key, int) else str(key): value for key, value in content.items()}
