"""Components from outside this repository, as `--import` names them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

from variants.errors import ConfigError


def import_component(module: str) -> None:
    """Import a module by name, also from the current folder, or a Python file by path.

    Raises:
        ConfigError: There is none, or its import fails.
    """
    path = Path(module)
    try:
        if path.suffix == ".py":
            spec = importlib.util.spec_from_file_location(path.stem, path)
            if spec is None or spec.loader is None or not path.is_file():
                raise ConfigError([f"--import: there is no file {module}"])
            loaded = importlib.util.module_from_spec(spec)
            sys.modules[path.stem] = loaded
            spec.loader.exec_module(loaded)
        else:
            sys.path.insert(0, "")
            importlib.import_module(module)
    except ConfigError:
        raise
    except Exception as error:  # whatever the user's own module raises
        raise ConfigError([f"--import {module}: {type(error).__name__}: {error}"]) from error
