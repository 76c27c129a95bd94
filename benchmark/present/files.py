"""Writing what was rendered, and knowing whether that is still up to date."""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

from benchmark.engine.files import write_bytes, write_json, write_text
from benchmark.errors import UserError

__all__ = ["RenderedFiles", "renderer_digest", "section_file"]

_PACKAGE = Path(__file__).resolve().parents[1]
_SOURCES = ("studies/*.py", "present/**/*.*", "render/**/*.*", "papers/**/*.py")


def section_file(study: str) -> str:
    """Where a study's part of the report is kept, below the results folder; safe to delete at any time."""
    return f".cache/report/{study}.html"


class RenderedFiles:
    """Which files each study has left in `root`, and from what they were made (``.rendered.json``)."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._path = root / ".rendered.json"
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            found = {}
        self._studies: dict[str, dict[str, Any]] = found if isinstance(found, dict) else {}

    def is_current(self, study: str, fingerprint: str) -> bool:
        """Whether the study's files were made from exactly this, and are all there."""
        entry = self._studies.get(study, {})
        return entry.get("fingerprint") == fingerprint and all(path.exists() for path in self.files(study))

    def fingerprint(self, study: str) -> str:
        """What the study's files were made from; empty if there are none."""
        return str(self._studies.get(study, {}).get("fingerprint", ""))

    def files(self, study: str) -> list[Path]:
        """What the study has left, as far as it is known."""
        return [self.root / name for name in self._studies.get(study, {}).get("files", [])]

    def write(self, study: str, fingerprint: str, contents: dict[str, str | bytes]) -> None:
        """Write a study's files (paths below `root` and contents) and drop those it no longer makes.

        Raises:
            UserError: they cannot be written.
        """
        for name, content in contents.items():
            path = self.root / name
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UserError(
                    f"cannot make the folder {path.parent}: {error.strerror}; choose another --results-dir"
                ) from error
            if isinstance(content, str):
                write_text(path, content)
            else:
                write_bytes(path, content)
        for path in self.files(study):
            if str(path.relative_to(self.root)) not in contents:
                with contextlib.suppress(OSError):
                    path.unlink()
        self._studies[study] = {"fingerprint": fingerprint, "files": list(contents)}
        write_json(self._path, self._studies)


def renderer_digest() -> str:
    """Changes with the code that renders."""
    digest = hashlib.sha256()
    paths = [path for pattern in _SOURCES for path in sorted(_PACKAGE.glob(pattern))]
    for path in paths:
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(path.read_bytes())
    return digest.hexdigest()
