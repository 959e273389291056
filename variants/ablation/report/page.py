"""The page: everything that is known of a study, in one file without scripts and without references to others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from variants.ablation import bench, scaling, table, tuning
from variants.ablation.compare import Comparison
from variants.ablation.plan import Plan
from variants.ablation.report import evaluations, facts, grid
from variants.ablation.results import Results
from variants.ablation.speedup import CAVEAT, SpeedUp

NUMERIC = {
    *table.NUMERIC,
    "non-embedding",
    "step",
    "seconds",
    "seeds",
    "seed",
    "step time",
    "memory",
    "peak memory",
    "tokens/s",
}
POWER = ("detectable", "seeds needed")


def page(
    comparison: Comparison,
    results: Results,
    plan: Plan,
    benchmark: pd.DataFrame | None,
    scaled: pd.DataFrame | None,
    pictures: Mapping[str, bytes],
) -> str:
    """The page as HTML.

    Args:
        comparison: What the study shows.
        results: What there is of its runs.
        plan: What they were to be.
        benchmark: What a step of each arm costs, where it was measured.
        scaled: How that grows with a field, where it was measured.
        pictures: The figures as SVG, by name.
    """
    loader = jinja2.PackageLoader("variants.ablation.report", "")
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.filters["measured"] = lambda name: "number" if name in NUMERIC else ""
    environment.filters["tone"] = tone
    verdicts = table.verdicts(comparison)
    return environment.get_template("page.html.jinja").render(
        study=comparison.study,
        comparison=comparison,
        title=table.title(comparison),
        verdicts=beside_cost(verdicts, benchmark),
        power=verdicts[["arm", *(name for name in POWER if name in verdicts)]],
        figures={name: Markup(inline(name, picture)) for name, picture in pictures.items()},  # our own, and escaped
        effects=table.effects(comparison),
        speed_ups=[(arm, _speed_up(made)) for arm, made in comparison.speed_ups.items()],
        caveat=CAVEAT,
        evaluations=_evaluations(comparison, results),
        arms=facts.arms(plan),
        plan=plan,
        settings=facts.settings(results),
        grid=grid.points(results, [arm.name for arm in plan.arms]) if results.study.tune else None,
        edges=tuning.edges(results),
        untuned=tuning.untuned(results),
        runs=facts.runs(results),
        diverged=facts.diverged(results),
        configs=list(facts.run_configs(results, plan)),
        benchmark=None if benchmark is None else bench.shown(benchmark),
        scaling=None if scaled is None else scaling.shown(scaled),
        has_runs=not results.curves.empty,
        versions=facts.versions(),
    )


def beside_cost(verdicts: pd.DataFrame, benchmark: pd.DataFrame | None) -> pd.DataFrame:
    """The verdicts, with what a step of each arm was measured to cost over the baseline's."""
    shown = verdicts.drop(columns=list(POWER), errors="ignore")
    if benchmark is None:
        return shown
    of = benchmark.reindex(verdicts["arm"])
    ratios = {"step time": of["step_ratio"], "memory": of["memory_ratio"]}
    return shown.assign(**{n: ["" if pd.isna(v) else f"x{v:.2f}" for v in values] for n, values in ratios.items()})


def inline(name: str, picture: bytes) -> str:
    """An SVG as it goes into a page, its identifiers its own."""
    text = picture.decode()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'(\bid="|"#|url\(#)', rf"\g<1>{name}-", text)
    width = float(re.search(r'viewBox="0 0 ([0-9.]+)', text)[1])  # type: ignore[index]  # matplotlib always gives one
    tag = rf'<svg \1 role="img" style="max-width: {100 * width / FULL:.0f}%" xmlns:xlink="{XLINK}">'
    return re.sub(r'<svg [^>]*?(viewBox="[^"]*")[^>]*>', tag, text, count=1)


FULL = 720  # points of a figure that is as wide as the page
XLINK = "http://www.w3.org/1999/xlink"  # a name that XML demands, which nobody fetches


def tone(verdict: str) -> str:
    """The class of a verdict, by its first word."""
    word = re.split(r"[; ]", verdict)[0]
    return word if word in table.COLOURS else ""


def _speed_up(made: SpeedUp) -> str:
    interval = "" if pd.isna(made.low) else f", 95% interval {made.low:.2f} to {made.high:.2f}"
    return f"{made.bound} {made.factor:.2f}{interval} ({made.n} seeds)".strip()


def _evaluations(comparison: Comparison, results: Results) -> Any:
    made = evaluations.table(comparison, results)
    if made is None:
        return None
    shown = made.map(lambda value: "none" if pd.isna(value) else f"{value:.4f}")
    return shown.rename_axis("arm").reset_index()
