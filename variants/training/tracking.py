"""A run in wandb. The only file that imports it, and never a reason for a training to fail."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from io import BytesIO
from typing import Any

from variants.training.files import write
from variants.training.folder import Folder

MODES = ("online", "offline", "disabled")
Table = tuple[list[str], list[list[Any]]]
PASSED_ON = ("project", "entity", "job_type", "tags", "notes")


class Tracking:
    """Follow a run in wandb, where the config has a column a slot, and metrics stand over steps or tokens.

    Without a key or a network the run is followed offline; ``wandb sync`` brings it online later. An offline run that
    is resumed becomes a new run in the same group that first repeats what is known, so that the newest of a group is
    whole and none overwrites another.

    Args:
        tracker: wandb's own names: ``mode``, ``project``, ``entity``, ``name``, ``group``, ``job_type``, ``tags``,
            ``notes``. Of its mode and that in ``WANDB_MODE``, the quieter one holds.
        config: Dotted names and plain values.
        folder: The run's.
        notify: Hears, once, that something does not work.
        init_timeout: Seconds to wait for the network.
    """

    def __init__(
        self,
        tracker: Mapping[str, Any],
        config: Mapping[str, Any],
        folder: Folder,
        notify: Callable[[str], None] = print,
        init_timeout: float = 10.0,
    ) -> None:
        self.tracker, self.config, self.folder, self.notify = tracker, config, folder, notify
        self.init_timeout = init_timeout
        wanted = [tracker.get("mode", "offline"), os.environ.get("WANDB_MODE", "online")]
        self.mode = max((m for m in wanted if m in MODES), key=MODES.index)
        self._run: Any = None
        self._memory = folder.path / "wandb.json"

    def start(self, rows: Iterable[Mapping[str, float]] = ()) -> None:
        """Start the run in wandb, or go on with it.

        Args:
            rows: What a run that is resumed has logged before.
        """
        if self.mode == "disabled":
            return
        try:
            self._start(list(rows))
        except Exception as error:  # whatever wandb raises, training goes on
            self.notify(f"wandb does not start, metrics go to {self.folder.metrics} alone: {_line(error)}")

    def _start(self, rows: list[Mapping[str, float]]) -> None:
        os.environ.setdefault("WANDB_SILENT", "true")
        import wandb

        before = json.loads(self._memory.read_text()) if rows and self._memory.exists() else {}
        goes_on = self.mode == "online" and before.get("mode") == "online"
        identity = before["id"] if goes_on else secrets.token_hex(4)
        if self.mode == "online":
            try:
                self._run = self._init(wandb, "online", identity)
            except Exception as error:
                self.notify(f"wandb is offline, `wandb sync` can bring the run online later: {_line(error)}")
                self.mode, identity, goes_on = "offline", secrets.token_hex(4), False
        if self._run is None:
            self._run = self._init(wandb, "offline", identity)
        write(self._memory, json.dumps({"id": identity, "mode": self.mode}) + "\n")
        for name in ("step", "tokens"):
            self._run.define_metric(name)
        self._run.define_metric("*", step_metric="step")
        for row in () if goes_on else rows:
            self._run.log(dict(row))

    def _init(self, wandb: Any, mode: str, identity: str) -> Any:
        settings = wandb.Settings(
            init_timeout=self.init_timeout,
            login_timeout=1,  # nobody is asked for a key
            finish_timeout=60,
            console="off",
            silent=True,
            disable_git=True,
            disable_code=True,
            disable_job_creation=True,
            x_save_requirements=False,
            x_disable_stats=True,
        )
        return wandb.init(
            id=identity,
            mode=mode,
            resume="allow" if mode == "online" else None,
            name=self.tracker.get("name") or self.folder.path.name,
            group=self.tracker.get("group") or self.folder.path.name,
            dir=self.folder.path,
            config=dict(self.config),
            settings=settings,
            **{name: self.tracker[name] for name in PASSED_ON if self.tracker.get(name)},
        )

    def log(self, row: Mapping[str, float | int | None]) -> None:
        """Add a row."""
        if self._run is None:
            return
        try:
            self._run.log(dict(row))
        except Exception as error:
            self.notify(f"wandb fails, metrics go to {self.folder.metrics} alone: {_line(error)}")
            self._run = None

    def show(self, tables: Mapping[str, Table], pictures: Mapping[str, bytes]) -> None:
        """Add tables and pictures.

        Args:
            tables: By name: the columns' names, and the rows.
            pictures: By name: PNG files.
        """
        if self._run is None:
            return
        try:
            import wandb
            from PIL import Image

            shown = {name: wandb.Table(columns=[*columns], data=rows) for name, (columns, rows) in tables.items()}
            images = {name: wandb.Image(Image.open(BytesIO(picture))) for name, picture in pictures.items()}
            self._run.log({**shown, **images})
        except Exception as error:
            self.notify(f"wandb does not take tables and pictures: {_line(error)}")

    def finish(self, exit_code: int) -> None:
        """End the run in wandb.

        Args:
            exit_code: 0: it went well.
        """
        if self._run is None:
            return
        try:
            self._run.finish(exit_code=exit_code)
        except Exception as error:
            self.notify(f"wandb does not finish: {_line(error)}")
        self._run = None


def _line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
