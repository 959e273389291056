"""The studies that are shipped: each can run, asks and predicts in its README, and concludes what its results say."""

import re
from pathlib import Path

import pytest

from variants.ablation import results, table
from variants.ablation import study as studies
from variants.ablation.compare import compare
from variants.ablation.plan import plan
from variants.ablation.report.readme import BEGIN, END

ROOT = Path(__file__).parent.parent / "experiments"
FOLDERS = sorted(file.parent for file in ROOT.glob("*/study.yaml"))
CONCLUDED = [folder for folder in FOLDERS if (folder / "README.md").read_text("utf-8").count(BEGIN)]


def plain(text):
    return " ".join(text.split())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_study_can_run_and_its_readme_asks_what_it_asks(folder):
    study = studies.load(folder)
    assert plan(study).problems == ()
    readme = plain((folder / "README.md").read_text("utf-8"))
    assert plain(f"**Question.** {study.question}") in readme
    assert plain(f"**Prediction, written before the run.** {study.prediction}") in readme
    assert re.search(r"arXiv:\d{4}\.\d{5}", study.prediction), "a prediction says where it comes from"


@pytest.mark.parametrize("folder", CONCLUDED, ids=lambda folder: folder.name)
def test_a_verdict_is_that_of_the_results_beside_it(folder, tmp_path):
    study = studies.load(folder)
    (tmp_path / folder.name).mkdir()
    for name in ("study.yaml", results.FILE):  # without the runs' folders, as in a clone
        (tmp_path / folder.name / name).write_bytes((folder / name).read_bytes())
    made = compare(studies.load(tmp_path / folder.name))
    assert made.seeds == list(study.seeds), "every seed that was declared has run"
    readme = (folder / "README.md").read_text("utf-8")
    verdict = readme.partition(BEGIN)[2].partition(END)[0]
    first = verdict.strip().split("\n\n")[1]  # the table behind the title; another one may be of effects
    rows = {line.split(" | ")[0].lstrip("| "): line for line in first.splitlines()}
    assert table.title(made) in verdict
    for row in table.verdicts(made).to_dict("records"):
        shown = rows[row["arm"]]
        for name in ("mean", table.DIFFERENCE, "verdict"):
            assert f" {row[name]} |" in shown, (row["arm"], name)
    assert "![" in verdict
    assert (folder / "figure.svg").is_file()
    headings = [line for line in (ROOT / "LOG.md").read_text("utf-8").splitlines() if line.startswith("## ")]
    assert any(f", {folder.name}: " in heading for heading in headings), "the log has its verdict"


def test_the_log_is_dated_newest_first():
    headings = [line for line in (ROOT / "LOG.md").read_text("utf-8").splitlines() if line.startswith("## ")]
    dates = [re.match(r"## (\d{4}-\d\d-\d\d), ", heading)[1] for heading in headings]
    assert dates == sorted(dates, reverse=True)
