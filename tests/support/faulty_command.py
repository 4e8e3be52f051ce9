"""The command `paceproxy` with faults on demand: `faulty_command.py FAULT_FILE TARGET,… ARGUMENT …`.

The function that the file names, as `module:qualified.name`, raises `Fault` the next time it is called, once.
"""

import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proxy_addon import cli


class Fault(Exception):
    """Raised on purpose."""


def rig(target: str, file: Path) -> None:
    """Put the fault into a function of a module, or a method of a class, wherever it was imported to."""
    module_name, _, path = target.partition(":")
    module = importlib.import_module(f"proxy_addon.{module_name}")
    *parents, name = path.split(".")
    owner: Any = functools.reduce(getattr, parents, module)
    original = inspect.getattr_static(owner, name)

    def broken(function: Callable[..., Any]) -> Callable[..., Any]:
        # What it returns, a coroutine or a generator, is made by the call: the fault comes before.
        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            if file.read_text("utf-8") == target:
                file.write_text("")
                raise Fault(target)
            return function(*arguments, **named)

        return call

    if isinstance(original, property):
        assert original.fget is not None
        setattr(owner, name, property(broken(original.fget)))
        return
    wrapped = broken(original)
    setattr(owner, name, wrapped)
    for other in [m for key, m in sys.modules.items() if key.startswith("proxy_addon") and m is not module]:
        for attribute, value in list(vars(other).items()):
            if value is original:
                setattr(other, attribute, wrapped)


def main() -> int:
    file, targets, arguments = Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[3:]
    importlib.import_module("proxy_addon.runner")
    for target in targets:
        rig(target, file)
    return cli.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
