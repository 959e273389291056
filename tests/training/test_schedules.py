import itertools
import math

import pytest

from variants.slots import schedules


def test_noam_gives_the_papers_values():
    noam = schedules.build({"name": "noam", "warmup": 4000}, d_model=512, lr=9.0, max_steps=10)
    values = [noam(step) for step in (1, 2, 4000, 16000)]
    assert values == pytest.approx([1.74693e-7, 3.49386e-7, 6.98771e-4, 3.49386e-4], rel=1e-5)


def test_noam_without_a_warm_up_starts_at_its_peak():
    for warmup in (0, 1):
        noam = schedules.build({"name": "noam", "warmup": warmup}, d_model=16)
        assert [noam(1), noam(4)] == [0.25, 0.125]


def test_noam_scales_with_its_factor_and_ignores_the_learning_rate():
    one, two = (schedules.build({"name": "noam", "factor": f}, d_model=64, lr=1.0) for f in (1.0, 2.0))
    assert two(7) == 2 * one(7)


def test_cosine_warms_up_to_the_peak_and_ends_at_the_floor_for_good():
    cosine = schedules.build({"name": "cosine", "warmup": 4, "floor": 0.1}, lr=2.0, max_steps=8)
    values = [cosine(step) for step in range(1, 10)]
    half = 0.2 + 1.8 * (1 + math.cos(math.pi / 2)) / 2
    assert values[:4] == [0.5, 1.0, 1.5, 2.0]
    assert values[5] == pytest.approx(half)
    assert values[7:] == pytest.approx([0.2, 0.2])
    assert all(a > b for a, b in itertools.pairwise(values[3:8]))


@pytest.mark.parametrize("warmup", [0, 1])
def test_cosine_without_a_warm_up_starts_at_its_peak(warmup):
    cosine = schedules.build({"name": "cosine", "warmup": warmup}, lr=2.0, max_steps=5)
    assert cosine(1) == 2.0
    assert cosine(5) == pytest.approx(0.2)


def test_cosine_of_one_step_trains():
    assert schedules.build("cosine", lr=2.0, max_steps=1)(1) > 0


def test_constant_is_constant_after_its_warm_up():
    constant = schedules.build({"name": "constant", "warmup": 2}, lr=3.0, max_steps=5)
    assert [constant(step) for step in (1, 2, 3, 1000)] == [1.5, 3.0, 3.0, 3.0]


@pytest.mark.parametrize("name", sorted(schedules.choices))
def test_the_first_update_never_has_a_learning_rate_of_0(name):
    for warmup in (0, 1, 9):
        assert schedules.build({"name": name, "warmup": warmup}, lr=1e-3, d_model=8, max_steps=10)(1) > 0


@pytest.mark.parametrize("name", sorted(schedules.choices))
def test_a_schedule_is_a_function_of_the_step_alone(name):
    one, other = (schedules.build({"name": name, "warmup": 3}, lr=1e-3, d_model=8, max_steps=10) for _ in range(2))
    assert [one(s) for s in range(1, 12)] == [other(s) for s in reversed(range(1, 12))][::-1]


def test_a_warm_up_as_long_as_the_training_is_refused():
    with pytest.raises(ValueError, match=r"warmup=10 must be below max_steps=10"):
        schedules.build({"name": "cosine", "warmup": 10}, lr=1.0, max_steps=10)
    with pytest.raises(ValueError, match="warmup=-1 must not be negative"):
        schedules.build({"name": "noam", "warmup": -1}, d_model=8)
    with pytest.raises(ValueError, match=r"floor=1\.5 must be a share"):
        schedules.build({"name": "cosine", "floor": 1.5}, lr=1.0, max_steps=10)
