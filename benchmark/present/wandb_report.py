"""A W&B Report of a profile: its tables as they were rendered, and charts of the runs behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pfl_benchmark.errors import UserError, optional
from pfl_benchmark.present.tracked import tables_of
from pfl_benchmark.records.store import Store
from pfl_benchmark.render.formats.markdown import markdown
from pfl_benchmark.render.table import Table
from pfl_benchmark.studies.catalogue import STUDIES
from pfl_benchmark.studies.grid import Profile
from pfl_benchmark.studies.results import collect
from pfl_benchmark.track.base import describe
from pfl_benchmark.track.weights_and_biases import require_key

_FLAG = "--wandb ENTITY/PROJECT"
_HOW = (
    "Runs of the harness for personalized federated learning. Accuracy is test accuracy, weighted by "
    "clients' test samples; that of the last round counts, never that of the best one. Bytes are those of "
    "the tensors in the messages, up, down and broadcast. Curves are means over seeds."
)


def destination(text: str) -> tuple[str, str]:
    """Entity and project of ``ENTITY/PROJECT``.

    Raises:
        UserError: it is not of that form.
    """
    entity, slash, project = (part.strip() for part in text.partition("/"))
    if not (entity and slash and project) or "/" in project:
        raise UserError(f"--wandb is '{text}'; expected {_FLAG.split()[1]}, such as my-team/pfl-benchmark")
    return entity, project


def publish(entity: str, project: str, profile: Profile, store: Store) -> str:
    """Publish a report of the tables that lie in a results folder and of the runs behind them.

    The runs themselves are those that were logged to that project while they were made.

    Returns:
        Its address.

    Raises:
        UserError: a package or a key is missing, there is nothing to publish, or W&B does not take it.
    """
    optional("wandb", f"report {_FLAG}")
    optional("wandb_workspaces", f"report {_FLAG}")
    require_key(f"report {_FLAG}", "leave --wandb out")
    tables = tables_of(store.root)
    if not tables:
        raise UserError(
            f"there are no rendered tables in {store.root}; make them first: python -m benchmark tables"
        )
    report = build(entity, project, profile, tables, runs_of(profile, store))
    try:
        return _save(report)
    except Exception as error:  # whatever lies between here and the service
        raise UserError(
            f"cannot publish the report to {entity}/{project}: {describe(error)}; check the network, the "
            "key, and that you may write to that project"
        ) from error


def runs_of(profile: Profile, store: Store) -> dict[str, dict[str, list[str]]]:
    """For each study its columns that have records: titles, and the identities of their runs, W&B's too."""
    found: dict[str, dict[str, list[str]]] = {}
    for study in STUDIES.values():
        if study.borrows:  # no run is filed under it
            continue
        results = collect(study, profile, store, None)
        columns = found.setdefault(study.name, {})
        for (_, column), records in results.records.items():
            columns.setdefault(column, []).extend(record.config.hash for record in records.values())
    return found


def build(
    entity: str,
    project: str,
    profile: Profile,
    tables: Mapping[str, Sequence[Table]],
    runs: Mapping[str, Mapping[str, Sequence[str]]],
) -> Any:
    """The report, not saved yet; nothing here asks the service.

    Args:
        tables: by study, as `tables_of` returns them.
        runs: as `runs_of` returns them.
    """
    import wandb_workspaces.expr as expr
    import wandb_workspaces.reports.v2 as wr

    def charts(title: str, filters: Any, *groups: str) -> Any:
        """Charts of some runs."""
        accuracy: dict[str, Any] = {"y": ["accuracy"], "title_y": "test accuracy"}
        sent = "cumulative/bytes"
        panels: list[Any] = [
            wr.LinePlot(title="Learning curves", x="round", title_x="communication round", **accuracy),
            wr.LinePlot(
                title="Accuracy against bytes", x=sent, title_x="bytes in all directions", **accuracy
            ),
            wr.BarPlot(title="Accuracy after the last round", metrics=["accuracy"]),
        ]
        return wr.PanelGrid(
            runsets=[wr.Runset(name=title, filters=filters, groupby=[*groups, "config.method"])],
            panels=panels,
        )

    blocks: list[Any] = [wr.TableOfContents(), wr.P(_HOW)]
    if profile.warning:
        blocks.insert(0, wr.CalloutBlock(text=profile.warning))
    for study in STUDIES.values():
        if own := tables.get(study.name):
            # The heading of a table is one below that of the study.
            blocks += [wr.H2(study.title), *(wr.MarkdownBlock(text=f"#{markdown(table)}") for table in own)]
            for column, identities in runs.get(study.name, {}).items():
                chosen = expr.And(expr.Metric("ID").isin([*identities]))
                blocks += [wr.H3(column), charts(f"{study.name}: {column}", chosen)]
    everything = expr.And(expr.Metric("JobType") != "tables")
    blocks += [wr.H2("All runs"), charts("all runs", everything, "config.study", "config.setting")]
    return wr.Report(
        entity=entity,
        project=project,
        title=f"pfl-benchmark: profile {profile.name}",
        description="Tables and learning curves of personalized federated learning",
        blocks=blocks,
        width="fluid",
    )


def _save(report: Any) -> str:
    """Hand the report to the service; returns its address."""
    import wandb

    wandb.setup(wandb.Settings(silent=True))
    return report.save().url
