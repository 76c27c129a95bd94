"""Bundles: finished records in one zip file that others can check.

::

    pack.json                    what is in the bundle: SHA-256 of every other file, data, versions
    records/<folder>/<file>      the sealed files of each record, and its seal
    plugins/<name>.py            plugin files that the runs were made with

A bundle is somebody else's file. Its names are compared with these patterns before anything is read, so no
path leads elsewhere; every file must be listed in pack.json, and every listed file must be there once,
with its SHA-256. Records are read as data. Nothing is unpickled, and plugin files are only copied:
who wants them run has to load them. What is read goes to a temporary folder.
"""

from __future__ import annotations

import ast
import contextlib
import graphlib
import hashlib
import io
import json
import re
import stat
import struct
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from pfl_benchmark import __version__
from pfl_benchmark.config.loaded import LOADED
from pfl_benchmark.errors import UserError, why
from pfl_benchmark.installation import requirements
from pfl_benchmark.records.environment import commit
from pfl_benchmark.records.files import make_folder_of, parse_json, read_json, write_bytes, write_json
from pfl_benchmark.records.record import Record
from pfl_benchmark.records.schema import COUNT, OBJECT, Allowed, check_entries
from pfl_benchmark.records.scratch import scratch
from pfl_benchmark.records.seal import SEALED, checked_verdict, read_sealed, with_checksum
from pfl_benchmark.records.sources import SOURCES
from pfl_benchmark.records.store import Store

FORMAT = 1
LARGEST = 2**26  # bytes of one file
LARGEST_PLUGIN = 2**22  # bytes of one plugin file, which is a source
LARGEST_IN_ALL = 2**31  # bytes of all files together
MOST = 200_000  # files
_ABOUT, _SEAL = "pack.json", "done"
_RECORD = re.compile(
    r"records/(?P<folder>[A-Za-z0-9_][A-Za-z0-9_.,=+-]{0,200}-[0-9a-f]{10})/(?P<file>[a-z.]+)"
)
_PLUGIN = re.compile(r"plugins/(?P<name>[A-Za-z_][A-Za-z0-9_]{0,100})\.py")
_DEVICES = re.compile(r"con|prn|aux|nul|com[0-9]|lpt[0-9]", re.IGNORECASE)  # no names of files on Windows
_MOMENT = (1980, 1, 1, 0, 0, 0)  # of all files, so that the same content makes the same bundle
# What zipfile raises on damaged files.
_DAMAGED = (ValueError, zipfile.BadZipFile, zlib.error, struct.error, RuntimeError, EOFError)
_LIST = Allowed((list,), "a list of objects", of=OBJECT)


# -- writing ----------------------------------------------------------------------------------------


def write_bundle(records: Sequence[Record], out: Path) -> dict[str, int]:
    """Write records and the plugin files that they need as one zip file; returns how many it holds.

    UserError for a record without a seal, a name that bundles cannot hold, a plugin that is not loaded, too
    large a bundle, and a file that cannot be written.
    """
    content: dict[str, bytes] = {}
    for record in records:
        if not record.sealed:
            raise UserError(f"{record.folder} is of an older version and not sealed; leave it out")
        files = {**read_sealed(record.folder), _SEAL: (record.folder / _SEAL).read_bytes()}
        content |= {f"records/{record.folder.name}/{name}": file for name, file in files.items()}
    content |= _plugin_files(records)
    if unfit := next((name for name in content if not _known(name)), None):
        raise UserError(
            f"{unfit} cannot be packed: expected letters, digits and _.,=+- in names of folders, and "
            "letters, digits and _ in names of plugins; rename it"
        )
    try:
        _check_sizes({name: len(file) for name, file in content.items()})
    except ValueError as error:
        raise UserError(f"cannot write {out}: {error}; make several bundles") from error
    about = json.dumps(_about(records, content), indent=1, allow_nan=False).encode() + b"\n"
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in {_ABOUT: about, **dict(sorted(content.items()))}.items():
            entry = zipfile.ZipInfo(name, _MOMENT)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, (stat.S_IFREG | 0o644) << 16
            archive.writestr(entry, file)
    make_folder_of(out)  # last of all: a bundle that is refused leaves no folder
    write_bytes(out, written.getvalue())
    return {
        "records": len(records),
        "plugins": sum(name.startswith("plugins/") for name in content),
        "bytes": written.tell(),
    }


def plugins_of(record: Record) -> list[str]:
    """Names of the plugins that were loaded when a record was made."""
    made = str(record.summary["environment"].get("plugins", ""))
    return [name for name in made.split(", ") if name]


def _plugin_files(records: Sequence[Record]) -> dict[str, bytes]:
    """The files of the plugins that records were made with, which have to be loaded."""
    loaded = {Path(plugin).name: (plugin, name) for plugin, name in LOADED.items()}
    found = {}
    for record in records:
        for plugin in plugins_of(record):
            if plugin not in loaded:
                raise UserError(
                    f"{record.folder.name} was made with the plugin {plugin}, which is not loaded; "
                    f"give it: --plugin {plugin if plugin.endswith('.py') else 'FILE.py'}"
                )
            path, name = loaded[plugin]
            if path == name:
                raise UserError(
                    f"{record.folder.name} was made with the plugin {plugin}, a module; bundles hold plugins "
                    "of one file each: leave its records out"
                )
            source = found[f"plugins/{plugin}"] = SOURCES[f"plugins/{name}/{name}.py"]
            if helper := _helper(source):
                raise UserError(
                    f"the plugin {plugin} imports {helper}, a file of yours, and bundles hold plugins of one "
                    "file each: put what it needs into the plugin"
                )
    return found


def _helper(source: bytes) -> str:
    """A module that a loaded plugin imports and that no package or other plugin brings; empty: none."""
    nodes = [*ast.walk(ast.parse(source))]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    brought = {"pfl_benchmark", *LOADED.values(), *sys.stdlib_module_names}
    own = sorted({name.partition(".")[0] for name in names} - brought)
    return next((name for name in own if _is_own(sys.modules.get(name))), "")


def _is_own(module: ModuleType | None) -> bool:
    """Whether a module is of files that no installation has put there."""
    places = [
        str(place) for place in (getattr(module, "__file__", None), *getattr(module, "__path__", ())) if place
    ]
    return bool(places) and not {"site-packages", "dist-packages"}.intersection(Path(places[0]).parts)


def _in_order(plugins: Sequence[Path]) -> list[Path]:
    """Plugin files, those that others import (as ``plugin_NAME``) before these."""
    names = {f"plugin_{plugin.stem}": plugin for plugin in plugins}
    words = {plugin: re.findall(r"\bplugin_\w+", plugin.read_text("utf-8", "replace")) for plugin in plugins}
    needed = {plugin: {names[w] for w in found if w in names} - {plugin} for plugin, found in words.items()}
    try:
        return [*graphlib.TopologicalSorter(needed).static_order()]
    except graphlib.CycleError:
        return [*plugins]


def _about(records: Sequence[Record], content: Mapping[str, bytes]) -> dict[str, Any]:
    """The content of pack.json."""
    copies = {(record.data.kind, record.data.sizes, record.data.checksum) for record in records}
    environments = Counter(json.dumps(record.summary["environment"], sort_keys=True) for record in records)
    return {
        "format": FORMAT,
        "program": {"version": __version__, "commit": commit()},
        "packages": _packages(),
        "data": [
            {**kind._asdict(), "samples": list(sizes), "checksum": checksum}
            for kind, sizes, checksum in sorted(copies)
        ],
        "environments": [
            {"records": count, "environment": json.loads(text)} for text, count in environments.most_common()
        ],
        "files": {name: hashlib.sha256(file).hexdigest() for name, file in sorted(content.items())},
    }


def _packages() -> dict[str, str]:
    """Versions of the packages that the project depends on, as far as they are installed."""
    versions = {}
    for name in requirements():
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


# -- reading ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bundle:
    """A bundle whose files are all there and as they were packed."""

    path: Path
    records: Sequence[Record]  # all that it holds, in a temporary folder
    plugins: Sequence[Path]  # copies of its plugin files; nothing has run them
    digest: str  # SHA-256 of the zip file


@contextlib.contextmanager
def unpacked(path: Path) -> Iterator[Bundle]:
    """The checked content of a bundle in a temporary folder; UserError where it is no whole bundle."""
    with scratch() as temporary:
        try:
            bundle = _unpack(path, temporary)
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror or error}; give the zip file") from error
        except _DAMAGED as error:
            reason = str(error).splitlines()[0] if str(error) else "it is damaged"
            raise UserError(
                f"{path} cannot be used as a bundle: {reason}; get it again, or have it made again by "
                "python -m benchmark pack"
            ) from error
        yield bundle


def _unpack(path: Path, root: Path) -> Bundle:
    """As `unpacked`; raises ValueError and what reading damaged zip files raises."""
    if path.stat().st_size > LARGEST_IN_ALL:
        raise ValueError(f"it has more than {LARGEST_IN_ALL:,} bytes")
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        entries = archive.infolist()
        _check_names(entries)
        _check_sizes({entry.filename: entry.file_size for entry in entries})
        listed = _listed(parse_json(_content(archive, archive.getinfo(_ABOUT)), _ABOUT))
        names = {entry.filename for entry in entries} - {_ABOUT}
        if missing := sorted(listed.keys() - names):
            raise ValueError(f"{missing[0]} is missing, which pack.json lists")
        if unlisted := sorted(names - listed.keys()):
            raise ValueError(f"{unlisted[0]} is not listed in pack.json")
        _check_records(names)
        for name in sorted(names):
            content = _content(archive, archive.getinfo(name))
            if hashlib.sha256(content).hexdigest() != listed[name]:
                raise ValueError(f"{name} is not as it was packed")
            target = root / name
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
            except OSError as error:
                raise UserError(
                    f"{path} cannot be unpacked into {root.parent}: {why(error)}; free space there, or name "
                    "another folder by the environment's TMPDIR"
                ) from error
    plugins = _in_order(sorted((root / "plugins").glob("*.py")))
    store = Store.scan(root / "records")
    if store.damaged:
        raise ValueError(f"record {store.damaged[0].folder.name}: {store.damaged[0].reason}")
    records = store.records()
    for record in records:
        for plugin in plugins_of(record):
            if f"plugins/{plugin}" not in names:
                raise ValueError(f"plugins/{plugin} is missing, with which {record.folder.name} was made")
    return Bundle(path, records, plugins, digest)


def _check_names(entries: Sequence[zipfile.ZipInfo]) -> None:
    """Refuse names that a bundle does not have, before any of them is used."""
    seen: set[str] = set()
    for entry in entries:
        name = entry.filename
        shown = name if name.isprintable() else ascii(name)
        mode = entry.external_attr >> 16
        if name != entry.orig_filename or (name != _ABOUT and not _known(name)):
            outside = name.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", name) or name[1:2] == ":"
            what = "leads outside of the bundle" if outside else "is no name of a file in a bundle"
            raise ValueError(f"{shown[:200]} {what}")
        if name.lower() in seen:  # file systems that ignore case would hold one of two
            raise ValueError(f"{shown} is there twice")
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            raise ValueError(f"{shown} is no regular file")
        if entry.flag_bits & 1:
            raise ValueError(f"{shown} is encrypted")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{shown} is compressed in another way than stored or deflated")
        seen.add(name.lower())
    if _ABOUT not in seen:
        raise ValueError(f"it has no {_ABOUT}")


def _known(name: str) -> bool:
    """Whether a bundle may have a file of this name, besides pack.json."""
    record = _RECORD.fullmatch(name)
    if record:
        return record["file"] in (*SEALED, _SEAL)
    plugin = _PLUGIN.fullmatch(name)
    return plugin is not None and not _DEVICES.fullmatch(plugin["name"])


def _check_sizes(sizes: Mapping[str, int]) -> None:
    """Refuse more than a bundle may hold."""
    for name, size in sizes.items():
        most = LARGEST_PLUGIN if name.startswith("plugins/") else LARGEST
        if size > most:
            raise ValueError(f"{name} has {size:,} bytes; expected at most {most:,}")
        if not size and name.endswith(f"/{_SEAL}"):
            raise ValueError(f"{name} is empty: its record is not sealed, so nothing vouches for its files")
    if len(sizes) > MOST:
        raise ValueError(f"it has {len(sizes):,} files; expected at most {MOST:,}")
    if sum(sizes.values()) > LARGEST_IN_ALL:
        raise ValueError(f"its files have {sum(sizes.values()):,} bytes; expected at most {LARGEST_IN_ALL:,}")


def _content(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """A file's content, of which no more is unpacked than its entry says."""
    with archive.open(entry) as file:
        return file.read(entry.file_size)


def _listed(about: Any) -> dict[str, Any]:
    """What should be SHA-256 by name, from pack.json."""
    needed = {"format": COUNT, "program": OBJECT, "files": OBJECT, "data": _LIST}
    check_entries(_ABOUT, about, needed, {"environments": _LIST, "packages": OBJECT})
    if about["format"] != FORMAT:
        raise ValueError(f"{_ABOUT} has format {about['format']} instead of {FORMAT}")
    files: dict[str, Any] = about["files"]
    return files


def _check_records(names: set[str]) -> None:
    """Refuse a bundle without records, or with half of one."""
    folders = sorted({record["folder"] for name in names if (record := _RECORD.fullmatch(name))})
    if not folders:
        raise ValueError("it has no record")
    for folder in folders:
        for file in ("config.json", "rounds.jsonl", "clients.csv", "summary.json", _SEAL):
            if f"records/{folder}/{file}" not in names:
                raise ValueError(f"records/{folder}/{file} is missing")


# -- verdicts about a bundle, in a file beside it -----------------------------------------------------


def write_verdicts(bundle: Bundle, verdicts: Mapping[str, Mapping[str, Any]]) -> Path:
    """Add verdicts, by folder of the record, to the file beside a bundle, ``NAME.zip.verified.json``."""
    path = _beside(bundle.path)
    new = {folder: with_checksum(verdict) for folder, verdict in verdicts.items()}
    write_json(path, {"pack": bundle.digest, "records": {**_verdicts(bundle), **new}})
    return path


def read_verdicts(bundle: Bundle) -> dict[str, Mapping[str, Any]]:
    """What `write_verdicts` kept about the records of this very bundle, by folder."""
    found, known = _verdicts(bundle), {}
    for record in bundle.records:
        if verdict := checked_verdict(found.get(record.folder.name), record.digest):
            known[record.folder.name] = verdict
    return known


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.verified.json")


def _verdicts(bundle: Bundle) -> dict[str, Any]:
    """The entries of the file beside a bundle; none if it is about another one or cannot be read."""
    try:
        found = read_json(_beside(bundle.path))
    except (OSError, ValueError):
        return {}
    records = found.get("records")
    return records if found.get("pack") == bundle.digest and isinstance(records, dict) else {}
