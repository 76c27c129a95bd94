"""Weights & Biases: one run there for every run here, and one for the tables of a profile.

The identity of a W&B run is that of the configuration, so that a run which was interrupted goes on in the
same W&B run. Everything that the service shows is what the record has: configuration, the lines of
rounds.jsonl, the summary, a histogram of clients.csv.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import netrc
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pfl_benchmark.errors import UserError, nearest, optional
from pfl_benchmark.track.base import About, Sums, Warn, describe, name_of_tables, need_folder, setting_of

if TYPE_CHECKING:
    from pfl_benchmark.render.table import Table

MODES = ("online", "offline", "disabled")
PROJECT = "pfl-benchmark"

_HOST = "api.wandb.ai"  # where `wandb login` leaves a key for, unless told otherwise
_TAG = 64  # letters that the service takes of a tag
_BINS = 20  # of the histogram of clients' accuracies
_INIT_SECONDS = 20.0  # for the service to answer when a run begins,
_FINISH_SECONDS = 30.0  # and to take what is left when it ends; what it has not got then stays on disk
_ROOM = 1 << 20  # bytes that must be free; the package itself loses its data silently on a full disk

_unreachable = False  # since this process has found out, at the cost of `_INIT_SECONDS`


@dataclass(frozen=True)
class WeightsAndBiases:
    """A `track.Tracking`.

    Attributes:
        mode: online or offline.
        entity: team or user; empty: the default of who is logged in.
        studies: names of the studies that use a run, by the hash of its configuration.
    """

    mode: str
    project: str = PROJECT
    entity: str = ""
    studies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    title = "W&B"

    @property
    def place(self) -> str:
        return f"W&B {self.mode} {self.entity}/{self.project}"

    def check(self) -> None:
        """Refuse what cannot work: an unknown mode, project or folder, no package, or no key to go online."""
        if self.mode not in MODES:
            known = ", ".join(MODES)
            raise UserError(f"--wandb is '{self.mode}'; expected one of: {known}{nearest(self.mode, MODES)}")
        optional("wandb", f"--wandb {self.mode}")
        import wandb

        try:
            wandb.Settings(project=self.project)
        except Exception as error:
            raise UserError(f"--wandb-project {self.project:.60}: {describe(error)}") from error
        if folder := os.environ.get("WANDB_DIR"):
            need_folder(Path(folder), f"WANDB_DIR={folder}")
        if self.mode == "online":
            require_key("--wandb online", "use --wandb offline")

    def begin(self, about: About, warn: Warn) -> _Run:
        """Begin a W&B run, or go on with it."""
        config, setting = about.config, setting_of(about.config)
        studies = self.studies.get(config.hash, ())
        run = self._open(
            about.folder.parent,
            warn,
            id=config.hash,
            name=about.name,
            group=": ".join([*studies[:1], setting]),
            job_type=about.method,
            tags=[config.algo, config.dataset, *(study[:_TAG] for study in studies)],
            config={
                **config.to_dict(),
                "method": about.method,
                "setting": setting,
                "study": studies[0] if studies else "",
                "studies": list(studies),
                "split": dict(about.split),
                "environment": dict(about.environment),
            },
        )
        if run.step and not about.done:
            warn(
                f"W&B has {run.step - 1} rounds of {about.name} from an earlier time; they stay as they are, "
                "new ones and the summary are added: if code has changed since, delete that W&B run first"
            )
        return _Run(run)

    def log_tables(self, profile: str, root: Path, tables: Sequence[Table], warn: Warn) -> None:
        """Log tables as printed (``tables/NAME``) and as plain numbers (``numbers/NAME``)."""
        import wandb

        from pfl_benchmark.render.table import plain

        run = self._open(
            root,
            warn,
            id=name_of_tables(profile, root),
            name=f"tables of {profile}",
            group="tables",
            job_type="tables",
            tags=["tables", profile[:_TAG]],
            config={"profile": profile},
        )
        with _quiet():
            logged = {}
            for table in tables:
                heads: list[str | int] = [head.text for head in table.heads]
                rows: list[Iterable[str]] = [[plain(cell) for cell in row] for row in table.rows]
                logged[f"tables/{table.name}"] = wandb.Table(columns=heads, data=rows)
                names, lines = table.facts()
                facts: list[Iterable[object]] = [[line.get(name) for name in names] for line in lines]
                logged[f"numbers/{table.name}"] = wandb.Table(columns=[*names], data=facts)
            run.log(logged)
            run.finish(exit_code=0)

    def _open(self, folder: Path, warn: Warn, **about: Any) -> Any:
        """A W&B run with its files in ``wandb/`` below `folder` (or below the environment's WANDB_DIR)."""
        global _unreachable
        import wandb

        folder = Path(os.environ.get("WANDB_DIR") or folder)
        folder.mkdir(parents=True, exist_ok=True)
        _check_room(folder)
        about |= {"project": self.project, "entity": self.entity or None, "dir": str(folder)}
        about |= {"settings": _settings(), "reinit": "create_new"}
        with _quiet():
            wandb.setup(wandb.Settings(silent=True))
            if self.mode == "online" and not _unreachable:
                try:
                    return wandb.init(mode="online", resume="allow", **about)
                except Exception as error:
                    _unreachable = True
                    warn(
                        "W&B cannot be used online, going on offline (`wandb sync "
                        f"{folder}/wandb/offline-run-*` uploads that later): {describe(error)}"
                    )
                wandb.teardown()  # which still holds the identity of the run
            return wandb.init(mode="offline", **about)


class _Run:
    """A `track.Tracker` that feeds a W&B run."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self._first = run.step  # of a W&B run that goes on, the rounds before are there
        self._round, self._sums = 0, Sums()
        run.define_metric("round")
        run.define_metric("*", step_metric="round")

    def round(self, line: Mapping[str, Any]) -> None:
        """Log the line, and what is added up (`Sums`)."""
        self._round = line["round"]
        sums = self._sums.add(line)
        if self._round < self._first:
            return
        _check_room(Path(self._run.dir))
        with _quiet():
            self._run.log({**line, **sums}, step=self._round)

    def finish(self, summary: Mapping[str, Any], accuracies: Sequence[float]) -> None:
        """Log what the record says in the end; it replaces what W&B sums up from the lines."""
        import wandb

        _check_room(Path(self._run.dir))
        with _quiet():
            histogram = wandb.Histogram(list(accuracies), num_bins=_BINS)
            step = max(self._round, self._first)
            # Committed, because the last line, written after the summary, would win over it.
            self._run.log({"clients/accuracy": histogram}, step=step, commit=True)
            self._run.summary.update(dict(summary))
            self._run.finish(exit_code=0)

    def stop(self, code: int) -> None:
        """Leave the W&B run marked as failed until it goes on."""
        with _quiet():
            self._run.finish(exit_code=code)

    def abandon(self) -> None:
        """End the W&B run, or where even that fails its service, so that the next run starts a new one."""
        import wandb

        with _quiet():
            try:
                self._run.finish(exit_code=1)
            except Exception:
                wandb.teardown()


def require_key(what: str, instead: str) -> None:
    """Check that there is a key to log in with, without asking the service.

    Args:
        instead: what to do without one.

    Raises:
        UserError: there is none.
    """
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return
    import wandb

    try:
        settings = wandb.setup(wandb.Settings(silent=True)).settings
    except Exception as error:  # of an environment or a file of settings that the package refuses
        raise UserError(f"{what}: W&B refuses its settings: {describe(error)}") from error
    known, host = settings.api_key, urlsplit(settings.base_url).netloc
    wandb.teardown()  # a run starts it again, and in its own process
    if not (known or _has_login(host) or _has_login(_HOST)):
        raise UserError(
            f"{what} needs a W&B key and finds none; set WANDB_API_KEY, log in once with `wandb login`, or "
            f"{instead}"
        )


def _has_login(host: str) -> bool:
    """Whether ``wandb login`` has left a key for a host."""
    for path in (os.environ.get("NETRC"), "~/.netrc", "~/_netrc"):
        with contextlib.suppress(OSError, netrc.NetrcParseError):
            if path and netrc.netrc(Path(path).expanduser()).authenticators(host):
                return True
    return False


# -- the package's manners ----------------------------------------------------------------------------


def _settings() -> Any:
    """No words on our terminal, nothing of the machine but what the record says."""
    import wandb

    return wandb.Settings(
        silent=True,
        console="off",
        disable_git=True,
        disable_code=True,
        init_timeout=_INIT_SECONDS,
        finish_timeout=_FINISH_SECONDS,
        finish_timeout_raises=True,
        x_disable_meta=True,
        x_disable_machine_info=True,
        x_save_requirements=False,
        host="-",  # left out, the package asks the system
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Nothing about the package's own log files, which it cannot write where a disk is full, say."""
    before, logging.raiseExceptions = logging.raiseExceptions, False
    try:
        yield
    finally:
        logging.raiseExceptions = before


def _check_room(folder: Path) -> None:
    """Raise OSError where the disk is as good as full."""
    if shutil.disk_usage(folder).free < _ROOM:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
