"""What a part is told: its own slot, and losses that add up."""

import torch

from variants.blocks.cache import Cache
from variants.blocks.context import Context


def test_a_slot_is_that_of_the_parts_depth():
    cache = Cache(3)
    assert Context(cache=cache, depth=2).slot("mixer") is cache.slot(2, "mixer")
    assert Context(cache=cache).slot("cross") is cache.slot(0, "cross")
    assert Context().slot("mixer") is None


def test_losses_of_one_name_add_up():
    context = Context()
    for name, value in (("balance", 1.0), ("balance", 2.0), ("other", 4.0)):
        context.add_loss(name, torch.tensor(value))
    assert {name: float(loss) for name, loss in context.losses.items()} == {"balance": 3.0, "other": 4.0}


def test_contexts_share_nothing():
    Context().add_loss("balance", torch.tensor(1.0))
    assert Context().losses == {}
