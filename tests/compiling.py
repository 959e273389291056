"""Compile every choice, in a process without the checks of types and shapes, which Torch cannot trace."""

from variants.registry import SLOTS
from variants.testing import PROMISES, Example
from variants.testing.common import compiles

if __name__ == "__main__":
    for slot, promises in PROMISES.items():
        for choice in SLOTS[slot].choices if compiles in promises else ():
            compiles(Example(slot, choice))
            print(f"{slot}.{choice}", flush=True)
