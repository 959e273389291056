import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pandas as pd
import pytest
from ablation import studies

from variants.ablation import bench, results, scaling
from variants.ablation.plan import plan
from variants.ablation.report import make, report
from variants.ablation.report.curves import shared
from variants.ablation.report.style import looks, render
from variants.errors import ConfigError


@pytest.fixture(autouse=True)
def fast(request, monkeypatch):
    """PDF takes most of the time, and is looked at once."""
    if "slow" not in request.keywords:
        monkeypatch.setattr(make, "render", lambda figure, form: render(figure, form) if form == "svg" else b"")


LOSSES = {"relu": 3.0, "gelu": 3.1, "swiglu": 2.8}


class Page(HTMLParser):
    """What a browser would make of a page."""

    OPEN_ENDED = {"meta", "link", "br", "hr", "img"}

    def __init__(self, file):
        super().__init__()
        self.source, self.links, self.open, self.text = file.read_text(), [], [], []
        self.ids = []
        self.feed(self.source)

    def handle_starttag(self, tag, attrs):
        self.links += [value for name, value in attrs if name in ("href", "src", "xlink:href", "srcset", "data")]
        self.ids += [value for name, value in attrs if name == "id"]
        assert tag not in ("script", "link", "iframe", "object", "embed")
        if tag not in self.OPEN_ENDED:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        if tag not in self.OPEN_ENDED:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    @property
    def words(self):
        return re.sub(r"\s+", " ", " ".join(self.text))


def swept(folder, *, diverged=(), missing=(), **changes):
    """A study with runs that nobody trained."""
    study = studies.study(folder, **changes)
    planned = plan(study)
    for run in [*planned.tune_runs(), *planned.main_runs()]:
        if (run.arm, run.seed) in missing:
            continue
        end = LOSSES.get(run.arm, 2.9) + 0.01 * run.seed % 0.5 + 0.003 * ((len(run.arm) * (run.seed + 3)) % 7)
        bad = (run.arm, run.seed) in diverged
        studies.pretend(run, (4.5, 4.0, 3.5, end), state="diverged" if bad else "finished")
    return study


def test_a_page_needs_nothing_else_and_says_all(tmp_path):
    study = swept(tmp_path / "study", smallest_effect=0.01, match="parameters")
    file = report(study.folder)
    page = Page(file)
    assert file == study.folder / "report" / "index.html"
    assert not page.open
    assert all(link.startswith("#") for link in page.links)
    assert {link[1:] for link in page.links} <= set(page.ids)
    assert len(set(page.ids)) == len(page.ids)  # a figure never points into another
    assert not re.search(r"url\((?!#)|@import|https?://(?!www\.w3\.org/)", page.source)
    for said in (study.question, study.prediction, "gelu", "swiglu", "relu (baseline)", "better", "0.01", "flash"):
        assert said in page.words
    assert "+ stack.layers.*.feedforward.gate: Linear" in page.words  # swiglu's difference in the parameter tree
    for run in plan(study).main_runs():
        assert f"runs/{run.arm}/main-{run.seed}" in page.words
        assert run.identity in page.words
    assert page.words.count("d_model: 16") >= 12  # the configs themselves


@pytest.mark.slow
def test_figures_lie_beside_the_page_and_are_the_same_each_time(tmp_path):
    study = swept(tmp_path / "study")
    report(study.folder)
    folder = study.folder / "report"
    made = {path.name: path.read_bytes() for path in folder.iterdir()}
    names = {path.stem for path in folder.glob("*.svg")}
    assert {"main", "effects", "curves", "differences"} <= names
    assert names == {path.stem for path in folder.glob("*.pdf")}
    for name in names:
        assert ET.fromstring(made[f"{name}.svg"]).tag.endswith("svg")
        assert b"<text" not in made[f"{name}.svg"]  # needs no font
        assert made[f"{name}.pdf"].startswith(b"%PDF")
        assert made[f"{name}.png"].startswith(b"\x89PNG")
    assert (study.folder / "figure.svg").read_bytes() == made["main.svg"]
    report(study.folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == made


def test_one_seed_has_differences_and_no_verdict(tmp_path):
    page = Page(report(swept(tmp_path / "study", seeds=1).folder))
    assert "one seed: a difference, no interval and no verdict" in page.words
    assert "nan" not in page.words


def test_diverged_runs_are_shown_with_their_step_and_reason(tmp_path):
    study = swept(tmp_path / "study", diverged=[("swiglu", 0), ("swiglu", 1), ("gelu", 2)])
    folder = next((study.folder / "runs").glob("gelu*/main-2"))
    (folder / "status.json").write_text('{"state": "diverged", "step": 3, "message": "the <gate> went bad"}')
    page = Page(report(study.folder))
    assert "diverged in 2 of 4" in page.words
    assert "the <gate> went bad" in page.words
    assert "<gate>" not in page.source  # nothing that a run says is markup


def test_an_arm_of_which_every_run_diverged_is_named(tmp_path):
    page = Page(report(swept(tmp_path / "study", diverged=[("swiglu", seed) for seed in range(4)]).folder))
    assert "diverged in 4 of 4" in page.words


def test_missing_runs_are_said(tmp_path):
    study = swept(tmp_path / "study", missing=[("gelu", 3), ("swiglu", 0)])
    assert "not all seeds are there for gelu, swiglu" in Page(report(study.folder)).words


def test_an_arm_without_any_run_does_not_spoil_the_page(tmp_path):
    study = swept(tmp_path / "study", missing=[("gelu", seed) for seed in range(4)])
    assert "no seed has both this arm and the baseline" in Page(report(study.folder)).words


def test_without_the_runs_the_page_says_what_is_missing(tmp_path):
    study = swept(tmp_path / "study", diverged=[("swiglu", 1)])
    results.save(results.load(study))
    report(study.folder)
    figure = (study.folder / "figure.svg").read_bytes()
    before = Page(study.folder / "report" / "index.html").words
    (study.folder / "runs").rename(tmp_path / "elsewhere")
    page = Page(report(study.folder, tmp_path / "out"))
    assert "folders of the runs are not here" in page.words
    assert "folders of the runs are not here" not in before
    assert "better" in page.words
    assert "gelu, as planned" in page.words
    assert not (tmp_path / "out" / "curves.svg").exists()
    assert (study.folder / "figure.svg").read_bytes() == figure  # of when the curves were there


def test_nothing_has_run(tmp_path):
    with pytest.raises(ConfigError, match="no run of the comparison has ended yet"):
        report(studies.study(tmp_path / "study").folder)


def test_tuning_shows_the_grid_and_warns_of_its_edge(tmp_path):
    study = swept(tmp_path / "study", tune={"optimiser.lr": [1e-3, 2e-3]}, base=[*studies.SMALL, "optimiser.lr=2e-3"])
    page = Page(report(study.folder))
    assert "optimiser.lr=0.002 is the largest of its grid" in page.words
    assert "(chosen)" in page.words
    assert (study.folder / "report" / "tuning.svg").exists()


def test_untuned_is_said(tmp_path):
    assert "None of the arms was tuned" in Page(report(swept(tmp_path / "study").folder)).words


def test_several_axes_have_their_effects(tmp_path):
    axes = {"model.feedforward": ["relu", "swiglu"], "model.residual": ["pre", "post"]}
    study = swept(tmp_path / "study", axes=axes, baseline=["relu", "pre"])
    assert "swiglu x post" in Page(report(study.folder)).words
    assert (study.folder / "report" / "factorial.svg").exists()


def test_evaluations_are_shown_where_a_model_refused_one_too(tmp_path):
    study = studies.study(tmp_path / "study", evaluate={"twice": ["data.length=256"]})
    for run in plan(study).main_runs():
        folder = studies.pretend(run)
        studies.evaluated(folder, twice={"refused": "too long"} if run.arm == "gelu" else {"val/loss": 3.75})
    page = Page(report(study.folder))
    assert "3.7500" in page.words
    assert "none" in page.words
    assert (study.folder / "report" / "evaluations.svg").exists()


def test_the_readme_gets_the_verdict_between_its_marks_alone(tmp_path):
    study = swept(tmp_path / "study")
    readme = study.folder / "README.md"
    readme.write_text("before\n<!-- verdict -->\nold\n<!-- end of verdict -->\nafter\n")
    report(study.folder)
    report(study.folder)
    content = readme.read_text()
    assert content.startswith("before\n<!-- verdict -->\n")
    assert content.endswith("<!-- end of verdict -->\nafter\n")
    assert "old" not in content
    assert content.count("| swiglu |") == 1
    assert "(figure.svg)" in content
    readme.write_text("without a place\n")
    report(study.folder)
    assert readme.read_text() == "without a place\n"


def test_a_benchmark_stands_beside_the_verdicts(tmp_path):
    study = swept(tmp_path / "study")
    row = dict.fromkeys(bench.COLUMNS, 1.0) | {"device": "cpu", "threads": 2, "rounds": 3}
    rows = [{"arm": arm, **row, "step_ratio": 1 + 0.25 * i} for i, arm in enumerate(("relu", "gelu", "swiglu"))]
    pd.DataFrame(rows).to_csv(study.folder / bench.FILE, index=False)
    page = Page(report(study.folder))
    assert "x1.50" in page.words
    assert "were not measured" not in page.words
    (study.folder / bench.FILE).write_text("arm,other\nrelu,1\n")
    assert "were not measured" in Page(report(study.folder)).words


def test_how_the_arms_grow_stands_in_the_report_where_it_was_measured(tmp_path):
    study = swept(tmp_path / "study")
    assert "exponent" not in Page(report(study.folder)).words
    rows = [
        {"field": "data.length", "value": v, "arm": arm, "step_seconds": 1e-5 * v**power, "peak_bytes": 1e4 * v}
        for v in (128, 256, 512)
        for arm, power in (("relu", 2), ("gelu", 1), ("swiglu", 1.5))
    ]
    pd.DataFrame(rows).to_csv(study.folder / scaling.FILE, index=False)
    page = Page(report(study.folder))
    assert "1.50 (1.50 to 1.50)" in page.words
    assert (study.folder / "report" / "scaling.svg").is_file()


def test_up_to_25_arms_look_different():
    assert len(set(looks([str(i) for i in range(25)]).values())) == 25


def test_curves_are_shared_at_the_steps_that_all_runs_have():
    rows = [("a", 1, 5.0), ("a", 2, 4.0), ("a", 3, 3.0), ("b", 2, 4.5), ("b", 3, 3.5), ("b", 4, 2.5)]
    values = shared(pd.DataFrame(rows, columns=["folder", "step", "loss"]), "loss")
    assert list(values.index) == [2, 3]
    assert values.to_numpy().tolist() == [[4.0, 4.5], [3.0, 3.5]]


def test_runs_that_have_no_second_in_common_are_drawn(tmp_path):
    study = studies.study(tmp_path / "study", seeds=2)
    for run in plan(study).main_runs():
        folder = studies.pretend(run, (4.0, 3.5, 3.0 + 0.1 * run.seed))
        if run.seed:
            folder.metrics.write_text(folder.metrics.read_text().replace(",50.0", ",0.5"))
    report(study.folder)
    assert (study.folder / "report" / "curves.svg").exists()
