import math

import numpy as np
import pytest
from scipy import stats

from variants.ablation.dunnett import dunnett_critical, dunnett_p
from variants.ablation.factorial import effects
from variants.ablation.speedup import speed_up
from variants.ablation.statistics import clopper_pearson, compare_to_baseline, detectable_effect, seeds_needed

NAN = math.nan
TWO = [[3.412, 3.371], [3.398, 3.349], [3.431, 3.395]]
THREE = [[2.951, 2.93, 2.874], [2.967, 2.949, 2.981], [2.948, 2.925, 2.902], [2.959, 2.941, 2.799]]
FOUR = [[4.102, 4.051, 4.11, 4.09], [4.087, 4.04, 4.089, NAN], [4.115, 4.058, 4.127, NAN]]
KNOWN = [  # data, smallest effect, arm; d, SE, t, critical t, interval, p, verdict: computed by other programs
    (TWO, 0.05, 1, -0.0420, 0.0038, -11.0937, 4.3027, -0.0583, -0.0257, 0.0080, "better"),
    (THREE, 0.02, 1, -0.0200, 0.0012, -16.3299, 4.1765, -0.0251, -0.0149, 0.0010, "better"),
    (THREE, 0.02, 2, -0.0673, 0.0362, -1.8562, 4.1765, -0.2186, 0.0841, 0.3209, "inconclusive"),
    (FOUR, 0.02, 1, -0.0517, 0.0029, -17.7797, 7.6488, -0.0739, -0.0294, 0.0094, "better"),
    (FOUR, 0.02, 2, 0.0073, 0.0029, 2.5236, 7.6488, -0.0149, 0.0296, 0.3829, "inconclusive"),
]


@pytest.mark.parametrize(
    ("values", "smallest", "arm", "d", "se", "t", "critical", "low", "high", "p", "verdict"), KNOWN
)
def test_known_answers(values, smallest, arm, d, se, t, critical, low, high, p, verdict):
    made = compare_to_baseline(values, smallest_effect=smallest)[arm - 1]
    e = made.estimate
    assert made.judgement == verdict
    got = [e.difference, e.se, e.t, e.critical, e.low, e.high, e.p]
    assert got == pytest.approx([d, se, t, critical, low, high, p], abs=5.1e-5)


def test_a_diverged_arm_is_reported_with_its_exact_interval():
    verdict = compare_to_baseline(FOUR)[2]
    assert (verdict.judgement, verdict.diverged, verdict.seeds) == ("diverged", 2, 3)
    assert verdict.diverged_interval == pytest.approx((0.0943, 0.9916), abs=5e-5)
    assert clopper_pearson(0, 3) == pytest.approx((0, 0.7076), abs=5e-5)


def test_higher_is_better_turns_the_verdict():
    assert compare_to_baseline(TWO, better="higher")[0].judgement == "worse"


def test_equivalent_needs_its_interval_inside_the_smallest_effect_and_comes_before_better():
    judged = {s: compare_to_baseline(TWO, smallest_effect=s)[0].judgement for s in (0.0530, 0.0531)}
    assert judged == {0.0530: "better", 0.0531: "equivalent"}  # 0.0420 + 2.9200 * 0.0037859 = 0.05305


def test_one_seed_gives_a_difference_and_no_verdict():
    verdict = compare_to_baseline([[3.0, 2.9]], smallest_effect=0.01)[0]
    assert verdict.estimate.difference == pytest.approx(-0.1)
    assert verdict.judgement == "none"
    assert math.isnan(verdict.estimate.low)
    assert "one seed" in verdict.note


def test_two_seeds_are_called_a_smoke_test():
    verdict = compare_to_baseline([[3.0, 2.9], [3.1, 3.02]])[0]
    assert verdict.estimate.critical == pytest.approx(12.7062, abs=1e-4)
    assert "smoke test" in verdict.note


def test_identical_differences_give_no_verdict():
    verdict = compare_to_baseline([[3.0, 2.5], [4.0, 3.5], [5.0, 4.5]])[0]
    assert verdict.judgement == "none"
    assert "independent" in verdict.note


def test_a_seed_in_which_the_baseline_diverged_is_dropped_for_all_and_said():
    with_it, without = compare_to_baseline([*THREE, [NAN, 2.9, 2.8]]), compare_to_baseline(THREE)
    assert [v.estimate for v in with_it] == [v.estimate for v in without]
    assert all("1 seed is dropped" in v.note for v in with_it)
    assert all(v.judgement != "diverged" for v in with_it)


def test_a_missing_run_is_no_divergence():
    values = [*THREE, [2.95, NAN, 2.9]]
    verdict = compare_to_baseline(values, diverged=np.zeros((5, 3), bool))[0]
    assert (verdict.judgement, verdict.estimate.n, verdict.diverged, verdict.seeds) == ("better", 4, 0, 4)


def test_an_arm_that_is_missing_altogether_has_no_verdict():
    verdict = compare_to_baseline([[1.0, NAN], [1.1, NAN]], diverged=np.zeros((2, 2), bool))[0]
    assert (verdict.judgement, verdict.estimate, verdict.seeds) == ("none", None, 0)


def test_detectable_effect_and_seeds_needed_follow_their_formula():
    estimate = compare_to_baseline(THREE)[1].estimate
    deviation = estimate.se * 2
    detectable = (stats.t.ppf(1 - 0.025 / 2, 3) + stats.t.ppf(0.8, 3)) * estimate.se
    assert detectable_effect(estimate) == pytest.approx(detectable)
    n = seeds_needed(estimate, 2, 0.05)
    wanted = [(stats.t.ppf(1 - 0.025 / 2, i - 1) + stats.t.ppf(0.8, i - 1)) * deviation / i**0.5 for i in (n - 1, n)]
    assert wanted[1] < 0.05 <= wanted[0]
    assert seeds_needed(estimate, 2, 1e-9) is None


# -- simulated studies ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ratio", [1.0, 5.0])
@pytest.mark.parametrize(("n", "k"), [(3, 4), (5, 6)])
def test_no_more_than_a_twentieth_of_null_studies_has_a_false_verdict(ratio, n, k):
    studies = 1000
    rng = np.random.default_rng(n)
    deviations = np.linspace(1.0, ratio, k) ** 0.5
    shared = rng.normal(size=(studies, n, 1))  # the seed's
    values = 3.0 + shared + rng.normal(size=(studies, n, k)) * deviations
    verdicts = [compare_to_baseline(study) for study in values]
    false = sum(any(v.judgement in ("better", "worse") for v in study) for study in verdicts)
    assert false / studies <= 0.05 + 2.6 * (0.05 * 0.95 / studies) ** 0.5
    held = sum(all(v.estimate.low <= 0 <= v.estimate.high for v in study) for study in verdicts)
    assert held / studies >= 0.95 - 2.6 * (0.05 * 0.95 / studies) ** 0.5
    assert false + held == studies


def test_a_single_interval_covers_its_true_difference_in_95_of_100_studies():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(2000, 4, 2)) * [1.0, 2.2] + [3.0, 2.5]
    estimates = [compare_to_baseline(study)[0].estimate for study in values]
    covered = sum(e.low <= -0.5 <= e.high for e in estimates) / 2000
    assert covered == pytest.approx(0.95, abs=2.6 * (0.05 * 0.95 / 2000) ** 0.5)


# -- equal variances --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("m", "df", "critical"), [(2, 10, 2.57), (3, 10, 2.76), (2, 20, 2.38), (4, 20, 2.65), (1, 7, 2.365)]
)
def test_dunnetts_critical_values_are_those_of_his_table(m, df, critical):
    assert dunnett_critical(0.05, m, df) == pytest.approx(critical, abs=5.1e-3)


def test_dunnetts_p_is_scipys():
    rng = np.random.default_rng(1)
    control, *arms = rng.normal([[0.0], [0.4], [1.2], [2.0]], size=(4, 6))
    made = stats.dunnett(*arms, control=control, random_state=0)
    ours = [dunnett_p(abs(t), 3, 20) for t in made.statistic]
    assert ours == pytest.approx(list(made.pvalue), abs=2e-3)


def test_equal_variances_pool_the_error_of_all_arms():
    e = compare_to_baseline(THREE, variances="equal")[0].estimate
    x = np.array(THREE)
    residual = x - x.mean(0) - x.mean(1)[:, None] + x.mean()
    se = ((residual**2).sum() / 6 * 2 / 4) ** 0.5
    assert (e.df, e.se, e.critical) == (6, pytest.approx(se), pytest.approx(dunnett_critical(0.05, 2, 6)))


def test_equal_variances_find_false_differences_in_no_more_than_a_twentieth_where_they_are_equal():
    rng = np.random.default_rng(2)
    values = rng.normal(size=(1000, 5, 4)) + rng.normal(size=(1000, 5, 1))
    judged = [compare_to_baseline(study, variances="equal") for study in values]
    false = sum(any(v.judgement in ("better", "worse") for v in study) for study in judged) / 1000
    assert 0.05 - 0.018 <= false <= 0.05 + 0.018


# -- effects of several axes ------------------------------------------------------------------------------------------


def test_main_effects_and_interactions_are_the_contrasts_of_the_design():
    rng = np.random.default_rng(3)
    a, b, ab = 0.5, -1.0, 2.0
    cells = np.array([[0, b], [a, a + b + ab]]) + rng.normal(size=(2000, 2, 2))
    made = {e.name: e for e in effects(cells, {"norm": ["pre", "post"], "ff": ["relu", "swiglu"]})}
    means = {"post": a + ab / 2, "swiglu": b + ab / 2, "post x swiglu": ab}
    for name, mean in means.items():
        assert made[name].estimate.difference == pytest.approx(mean, abs=5 * made[name].estimate.se)
    assert made["post x swiglu"].estimate.se == pytest.approx(2 * made["post"].estimate.se, rel=0.1)
    assert made["post"].estimate.critical == pytest.approx(stats.t.ppf(1 - 0.025 / 3, 1999))
    assert not made["post"].read_alone


def test_an_interaction_that_is_certain_but_small_leaves_a_main_effect_alone():
    cells = np.array([[0, 1], [2, 3.1]]) + np.random.default_rng(4).normal(scale=1e-3, size=(9, 2, 2))
    main, _, interaction = effects(cells, {"norm": ["pre", "post"], "ff": ["relu", "swiglu"]})
    assert interaction.estimate.low > 0
    assert main.read_alone


def test_an_axis_of_three_levels_has_an_effect_for_each_that_is_not_the_baselines():
    values = np.arange(4 * 3 * 2, dtype=float).reshape(4, 3, 2) ** 1.1
    made = effects(values, {"norm": ["pre", "post", "none"], "ff": ["relu", "gelu"]})
    assert [e.name for e in made] == ["post", "none", "gelu", "post x gelu", "none x gelu"]
    none = values.mean(2)[:, 2] - values.mean(2)[:, 0]
    assert made[1].estimate.difference == pytest.approx(none.mean())
    crossed = (values[:, 2, 1] - values[:, 2, 0]) - (values[:, 0, 1] - values[:, 0, 0])
    assert made[4].estimate.difference == pytest.approx(crossed.mean())


# -- speed-up ---------------------------------------------------------------------------------------------------------

CURVE = ([1, 2, 4, 8], [4.0, 3.6, 3.3, 3.1])


def test_speed_up_has_its_known_answer():
    made = speed_up([CURVE] * 3, [(8, 3.45), (8, 3.42), (8, 3.48)])
    assert (made.factor, made.low, made.high) == pytest.approx((0.3536, 0.2976, 0.4200), abs=5e-5)
    assert made.bound == ""


def test_speed_up_is_a_bound_where_the_baseline_never_got_as_far():
    made = speed_up([CURVE], [(8, 3.05)])
    assert (made.factor, made.bound) == (1.0, "at least")
    made = speed_up([CURVE], [(8, 4.5)])
    assert (pytest.approx(made.factor), made.bound) == (1 / 8, "at most")
    assert speed_up([CURVE, CURVE], [(8, 3.05), (8, 4.5)]) is None


def test_speed_up_reads_a_curve_that_goes_up_again_by_its_best_so_far():
    bumpy = ([1, 2, 3, 4, 8], [4.0, 3.6, 3.9, 3.3, 3.1])
    assert speed_up([bumpy], [(8, 3.45)]).factor == pytest.approx(12**0.5 / 8)  # between 3.6, kept until 3, and 3.3
    negated = (CURVE[0], [-y for y in CURVE[1]])
    assert speed_up([negated], [(8, -3.45)], "higher").factor == pytest.approx(2**1.5 / 8)
