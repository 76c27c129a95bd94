"""`run`: one run, from Python."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

from pfl_benchmark.algorithms import find
from pfl_benchmark.config.fields import in_one, meant, nearest_setting
from pfl_benchmark.config.flags import config_from
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.datasets.registry import DATASETS
from pfl_benchmark.engine.algorithm import Algorithm
from pfl_benchmark.errors import UserError, unknown
from pfl_benchmark.experiment.callbacks import Callback, Callbacks
from pfl_benchmark.experiment.runner import record_of, run_single
from pfl_benchmark.interface.federated import FederatedData
from pfl_benchmark.interface.keywords import in_keywords
from pfl_benchmark.interface.method import name_of, only_here, refuse_other_processes
from pfl_benchmark.interface.module import ModuleFactory, network_of_module
from pfl_benchmark.interface.plugins import as_python, each_once, execution_of, load_named
from pfl_benchmark.records.record import Record, read_record
from pfl_benchmark.records.writer import RunRecord
from pfl_benchmark.resolve.run import owners, resolve
from pfl_benchmark.track.base import Tracking

_FIELDS = {spec.name: spec for spec in dataclasses.fields(RunConfig) if spec.name not in ("algo", "hyper")}
_CALLED = {
    "plugin": "plugins", "gpu": "device", "cuda": "device", "wandb": "trackings", "set": "hyper",
    "verbose": "progress",
}  # fmt: skip
Method = str | type[Algorithm]
_TYPES: Mapping[type, tuple[type, ...]] = {str: (str,), int: (int,), float: (int, float), bool: (bool,)}


@overload
def run(algo: Method, *, seed: int = 0, **keywords: Any) -> Record: ...
@overload
def run(algo: Method, *, seed: Sequence[int], **keywords: Any) -> list[Record]: ...
def run(
    algo: Method,
    *,
    setting: str | None = None,
    dataset: str | FederatedData | None = None,
    network: str | ModuleFactory | None = None,
    seed: int | Sequence[int] = 0,
    hyper: Mapping[str, Any] | None = None,
    ablation: str | None = None,
    columns: Mapping[str, str] | None = None,
    plugins: Sequence[str | Path] = (),
    results_dir: str | Path = "results/runs",
    data_dir: str | Path | None = None,
    device: str = "auto",
    executor: str = "auto",
    client_memory: int | str | None = None,
    save_models: bool = False,
    save_predictions: bool = False,
    progress: bool = True,
    again: bool = False,
    on_round: Callback | None = None,
    on_evaluation: Callback | None = None,
    trackings: Sequence[Tracking] = (),
    **fields: Any,
) -> Record | list[Record]:
    """Carry out one run as ``python -m benchmark run`` does, and return its record.

    A finished run is read, not repeated. An interrupted one is continued from its checkpoint.

    ```python
    record = run("fedper", dataset="digits", rounds=10)
    record.summary["accuracy"], record.accuracies, record.folder
    run(**record.config)  # the same run: its record is read
    three = run("fedper", dataset="digits", rounds=10, seed=[0, 1, 2])
    ```

    Args:
        algo: name of a method, or the class of one of your own, which need not be registered.
        setting: dataset, split and protocol (``python -m benchmark list settings``).
        dataset: its first setting is used where none is given; also ``folder:PATH`` and the like, or what
            `federated` returns.
        network: name of a network (``python -m benchmark list networks``); or a class or function that makes
            a `torch.nn.Module`, see `network_of_module`.
        seed: one, or several: then a list of records is returned.
        hyper: the method's hyper-parameters that differ from their defaults, by name.
        ablation: a named variant of the method.
        columns: of ``parquet:PATH``, what they are called: ``{"image": "img", "label": "fine_label"}``.
        plugins: Python files or modules that register methods, networks or datasets.
        results_dir: where records lie.
        data_dir: folder that holds the datasets; None: the environment's PFL_DATA_DIR, else a cache folder.
        device: auto, cpu, cuda, cuda:N or mps; several GPUs as "cuda:0,cuda:1".
        executor: auto, loop, threads, stacked or ray.
        client_memory: memory for what clients keep between rounds, in bytes or such as "4GiB"; more goes to a
            file, with the same results. None: half of what is free.
        save_models: keep the models that clients are evaluated with, for `load_model`.
        save_predictions: keep the logits of all test samples, for `load_predictions`.
        progress: show a bar (on a terminal or in a notebook) or lines.
        again: run anew; a finished record of this run stays unless the new one is finished.
        on_round: called after every round with a dictionary of its figures, as rounds.jsonl has them. If it
            returns True, the run ends: clients are evaluated as after the last round (in which, by default,
            everyone takes part; what that would send is not counted), and the record's configuration has the
            round as ``stop_after``. It is called for rounds of an interrupted run too, and not at all for a
            finished run.
        on_evaluation: the same, only after rounds that were evaluated.
        trackings: trackers that follow the run (`track.base`).
        fields: further fields of `config.run_config.RunConfig`: rounds, lr, partition, clients, ...

    Returns:
        The record: configuration, summary, accuracies per client and the lines of all rounds. A list of
        records for a list of seeds.

    Raises:
        UserError: bad input, in one line.
    """
    load_named(plugins)
    seed = as_python(seed)
    if isinstance(seed, Sequence) and not isinstance(seed, str):
        keywords = {name: value for name, value in locals().items() if name not in ("algo", "seed", "fields")}
        return [run(algo, seed=each, **keywords, **fields) for each in each_once(seed)]
    method = find(name_of(algo))
    here: list[object] = [method.name] if only_here(method.name) else []
    here += [each for each in (dataset, network) if each is not None and not isinstance(each, str)]
    refuse_other_processes(here, 1, device, executor)
    dataset = dataset.name if isinstance(dataset, FederatedData) else dataset
    given: dict[str, Any] = {"dataset": dataset, "network": network, "seed": seed, **fields}
    if network is not None and not isinstance(network, str):
        given["network"] = RunConfig.network
    given = {name: in_one(name, as_python(value)) for name, value in given.items() if value is not None}
    if isinstance(hyper, Mapping):
        hyper = {name: as_python(value) for name, value in hyper.items()}
    for name, value in given.items():
        _check(name, value, method)
    by_name = isinstance(hyper, Mapping) and all(isinstance(name, str) for name in hyper)
    named = isinstance(columns, Mapping) and all(isinstance(n, str) for pair in columns.items() for n in pair)
    called = [value is None or callable(value) for value in (on_round, on_evaluation)]
    for name, value, fits, expected in (
        ("setting", setting, isinstance(setting, str | None), "a name, such as 'digits-s2'"),
        ("ablation", ablation, isinstance(ablation, str | None), "a name"),
        ("hyper", hyper, hyper is None or by_name, "a dictionary of hyper-parameters by name"),
        ("columns", columns, columns is None or named, 'names of columns, such as {"image": "img"}'),
        ("results_dir", results_dir, isinstance(results_dir, str | Path) and results_dir != "", "a folder"),
        ("data_dir", data_dir, isinstance(data_dir, str | Path | None), "a folder"),
        ("device", device, isinstance(device, str), "a name, such as 'cpu'"),
        ("executor", executor, isinstance(executor, str), "a name"),
        ("on_round", on_round, called[0], "a function of a dictionary"),
        ("on_evaluation", on_evaluation, called[1], "a function of a dictionary"),
    ):
        if not fits:
            raise UserError(f"{name} is {value!r:.60}; expected {expected}")
    own = {spec.name for spec in dataclasses.fields(method.Hyper)}
    if field := next((name for name in hyper or () if name not in own and name in _FIELDS), None):
        value = f"{field}={(hyper or {})[field]!r:.40}"
        raise UserError(f"'{field}' is no hyper-parameter of '{method.name}'; give it as {value}")
    with in_keywords():
        chosen, config = _configured(given, setting, columns)
        if network is not None and not isinstance(network, str):
            kind = DATASETS[config.dataset].kind
            config = dataclasses.replace(config, network=network_of_module(network, kind)).settled()
        asked = resolve(dataclasses.replace(config, algo=method.name, hyper=hyper or {}), ablation=ablation)
        kept = (save_models, save_predictions)
        execution = execution_of(device, executor, data_dir, results_dir, trackings, client_memory, *kept)
    callbacks = Callbacks(on_round, on_evaluation)
    with _anew(record_of(asked, execution.results_dir), again), in_keywords():
        summary = run_single(chosen, asked, execution, quiet=not progress, callbacks=callbacks)
    return read_record(Path(summary["record"]).absolute())


def _configured(
    given: Mapping[str, Any], setting: str | None, columns: Mapping[str, str] | None
) -> tuple[str, RunConfig]:
    """The setting's name and the configuration; of a whole one, such as a record's, nothing is a default."""
    if setting is None and given.keys() >= _FIELDS.keys() and given["dataset"] in DATASETS:
        config = dataclasses.replace(RunConfig(), **given)
        config.validate()
        return nearest_setting(config), config.settled()
    return config_from(given, setting, columns)


@contextlib.contextmanager
def _anew(record: RunRecord, again: bool) -> Iterator[None]:
    """If a run is to be made `again`, put its finished record aside until the new one is finished."""
    old = record.folder.with_name(f"{record.folder.name}.old")
    again = again and record.done
    if again:
        shutil.rmtree(old, ignore_errors=True)
        record.folder.rename(old)
    try:
        yield
    except BaseException:
        if again:
            shutil.rmtree(record.folder, ignore_errors=True)
            old.rename(record.folder)
        raise
    if again and not record.done:  # a callback has stopped it, and it is another run's record
        shutil.rmtree(record.folder, ignore_errors=True)
        old.rename(record.folder)
    shutil.rmtree(old, ignore_errors=True)


def _check(name: str, value: Any, method: type[Algorithm]) -> None:
    """Refuse what is no field, or of another kind."""
    if name not in _FIELDS:
        having, field = owners(name), meant(name, (*_FIELDS, "algo"))
        if method.name in having:
            raise UserError(
                f"'{name}' is a hyper-parameter of '{method.name}': give it as "
                f'hyper={{"{name}": {value!r:.40}}}'
            )
        if having and not field:
            raise UserError(
                f"'{name}' is a hyper-parameter of {', '.join(having)}, not of '{method.name}'; drop it, or "
                "choose another method"
            )
        raise unknown("keyword", name, _KEYWORDS, _CALLED.get(name, field))
    default = _FIELDS[name].default
    if type(value) not in _TYPES[type(default)]:
        if isinstance(value, list | tuple | set | range):
            raise UserError(
                f"{name} is {value!r:.40}; expected one value, such as {name}={default!r}; for several, "
                f'call grid with vary={{"{name}": [...]}}'
            )
        raise UserError(
            f"{name} is {value!r:.40}; expected {type(default).__name__}, such as "
            f"{name}={_converted(value, type(default), default)!r}"
        )


def _converted(value: Any, kind: type, default: Any) -> Any:
    """A value of the expected type that is most likely meant, else the default."""
    if kind is str:
        return f"folder:{value}" if isinstance(value, Path) else default
    if kind is bool:
        return str(value).lower() in ("true", "yes", "1", "on")
    try:
        return kind(value)
    except (TypeError, ValueError, OverflowError):
        return default


_KEYWORDS = (
    *_FIELDS,
    *(name for name in inspect.signature(run).parameters if name not in (*_FIELDS, "fields")),
)
