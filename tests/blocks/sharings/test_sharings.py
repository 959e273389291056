import pytest

from variants.slots import sharings


@pytest.mark.parametrize(("name", "wanted"), [("none", [0, 1, 2, 3]), ("all", [0, 0, 0, 0])])
def test_every_depth_gets_its_layer(name, wanted):
    assert list(sharings.build(name)(4)) == wanted


@pytest.mark.parametrize("name", sharings.choices)
def test_layers_are_numbered_without_a_gap(name):
    order = list(sharings.build(name)(5))
    assert len(order) == 5
    assert sorted(set(order)) == list(range(max(order) + 1))
