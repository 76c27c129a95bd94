"""MkDocs' hooks: the pages of `docs.generate.pages` instead of the files of a folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from docs.generate import pages, registries  # noqa: E402
from pfl_benchmark import __version__  # noqa: E402

_SITE = pages.make()


def on_config(config: Any) -> Any:
    """The menu, which lists generated pages, and the version below every page."""
    config.copyright = f"pfl-benchmark {__version__}, Apache 2.0"
    config.nav = registries.navigation(_SITE.pages)
    return config


def on_files(files: Files, config: Any) -> Files:
    """Every page, and the pictures that they show."""
    made = [file for file in files if not file.src_uri.endswith(".md")]
    for path, text in _SITE.pages.items():
        made.append(File.generated(config, path, content=text))
    for path, source in _SITE.assets.items():
        made.append(File.generated(config, path, content=source.read_bytes()))
    return Files(made)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """The search finds an option before a result that was made with it."""
    first, last = ("commands.md", "configuration.md"), ("results/", "performance.md", "board.md")
    path = page.file.src_uri
    boost = 4 if path in first else 0.3 if path.startswith(last) else 1
    page.meta["search"] = {"boost": boost}
    return markdown


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Nothing from the net: see `_local`."""
    return _local(output, "../" * page.url.count("/"))


def on_post_template(output: str, template_name: str, config: Any) -> str:
    """Likewise for the page of unknown addresses."""
    return _local(output, "")


def _local(output: str, up: str) -> str:
    """The shim with which the search works without a server is one of the site's own files."""
    return output.replace("https://unpkg.com/iframe-worker/shim", f"{up}javascripts/iframe-worker.js")


def on_post_build(config: Any) -> None:
    """The page of unknown addresses is for servers, and its links need one."""
    (Path(config.site_dir) / "404.html").unlink(missing_ok=True)
