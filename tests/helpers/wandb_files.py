"""Reading back what Weights & Biases keeps of a run offline."""

import json
import struct
import time
from pathlib import Path

_HEADER, _BLOCK = 7, 32768  # of the file, and of a record within blocks


class OfflineRun:
    """A folder ``offline-run-*``.

    Attributes:
        about: the run record: run_id, display_name, project, entity, run_group, job_type, tags.
        config, summary: as they stand at the end; history: the rows without what W&B adds to them.
        code: the exit code, None where the run was not ended.
    """

    def __init__(self, folder: Path) -> None:
        (self.file,) = folder.glob("run-*.wandb")
        self.folder, self.history, self.config, self.summary, self.code = folder, [], {}, {}, None
        for record in _records(self.file.read_bytes()):
            kind = record.WhichOneof("record_type")
            if kind == "run":
                self.about = record.run
                _update(self.config, record.run.config.update)
            elif kind == "config":
                _update(self.config, record.config.update)
            elif kind == "summary":
                _update(self.summary, record.summary.update)
            elif kind == "history":
                row = {}
                _update(row, record.history.item)
                self.history.append({name: value for name, value in row.items() if name[0] != "_"})
            elif kind == "exit":
                self.code = record.exit.exit_code


def offline_runs(root: Path, identity: str = "*") -> list[OfflineRun]:
    """Those in a results folder, waiting until the service has written the last of each."""
    runs = []
    for path in sorted((root / "wandb").glob(f"offline-run-*/run-{identity}.wandb")):
        deadline = time.monotonic() + 30
        while (run := OfflineRun(path.parent)).code is None and time.monotonic() < deadline:
            time.sleep(0.02)
        runs.append(run)
    return sorted(runs, key=lambda run: run.file.stat().st_mtime_ns)


def _update(values, items):
    for item in items:
        *path, last = item.nested_key or [item.key]
        place = values
        for name in path:
            place = place.setdefault(name, {})
        place[last] = json.loads(item.value_json)


def _records(data):
    """The protocol buffers of a file: a LevelDB log, whose records may be cut into pieces at blocks' ends.

    A piece that is not yet written whole ends them.
    """
    from wandb.proto import wandb_internal_pb2

    assert data[:4] == b":W&B"
    position, pieces = _HEADER, b""
    while position + 7 <= len(data):
        left = _BLOCK - position % _BLOCK
        if left < 7:
            position += left
            continue
        _, length, kind = struct.unpack("<IHB", data[position : position + 7])
        start, position = position + 7, position + 7 + length
        if position > len(data):
            return
        pieces += data[start:position]
        if kind in (1, 4):  # whole, or the last piece
            record = wandb_internal_pb2.Record()
            record.ParseFromString(pieces)
            yield record
            pieces = b""
