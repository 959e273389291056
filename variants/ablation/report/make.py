"""Make a study's page and figures from what there is of it."""

from __future__ import annotations

from pathlib import Path

from variants.ablation import bench, compare, results, scaling
from variants.ablation import study as studies
from variants.ablation.plan import Plan, plan
from variants.ablation.report import page, readme, tracked
from variants.ablation.report.figures import figures
from variants.ablation.report.style import render
from variants.errors import ConfigError
from variants.training.files import replacing, write

MAIN = "figure.svg"
FORMS = ("svg", "pdf", "png")


def report(
    study_folder: str | Path,
    out: str | Path | None = None,
    *,
    planned: Plan | None = None,
    config_dir: str | Path | None = None,
    track: bool = False,
) -> Path:
    """Write a study's report: a page that needs nothing else, its figures as SVG, PDF and PNG beside it.

    ``figure.svg`` in the study's folder is its main figure; where the curves are gone an older one stays. The README's
    marked block gets the verdicts.

    Args:
        study_folder: With a ``study.yaml``, and runs or a ``results.csv``.
        out: Where to; None: ``report/`` in it.
        planned: The study's plan, if it is made already.
        config_dir: The user's folder of config files.
        track: Whether verdicts and figures go to wandb as well, as the study's runs do.

    Returns:
        The page.

    Raises:
        ConfigError: The study is wrong, no run has ended, or the folder cannot be written.
    """
    study = studies.load(study_folder)
    planned = planned or plan(study, config_dir=config_dir)
    found = results.load(study, planned)
    comparison = compare.compare(study, results=found)
    benchmark, scaled = bench.read(study.folder), scaling.read(study.folder)
    folder = Path(out) if out is not None else study.folder / "report"
    drawn = figures(comparison, found, benchmark, scaled)
    pictures = {form: {name: render(figure, form) for name, figure in drawn.items()} for form in FORMS}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for form, named in pictures.items():
            for name, picture in named.items():
                _write(folder / f"{name}.{form}", picture)
        if not (found.curves.empty and (study.folder / MAIN).is_file()):
            _write(study.folder / MAIN, pictures["svg"]["main"])
        write(folder / "index.html", page.page(comparison, found, planned, benchmark, scaled, pictures["svg"]))
        readme.update(study.folder / "README.md", comparison, MAIN)
    except OSError as error:
        raise ConfigError([f"{folder} cannot be written: {error.strerror}"]) from None
    if track:
        tracked.track(planned, comparison, folder, pictures["png"])
    return folder / "index.html"


def _write(path: Path, content: bytes) -> None:
    with replacing(path) as file:
        file.write(content)
