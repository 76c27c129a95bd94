"""The key that Weights & Biases needs."""

from __future__ import annotations

import contextlib
import netrc
import os
from pathlib import Path
from urllib.parse import urlsplit

from pfl_benchmark.errors import UserError

_HOST = "api.wandb.ai"  # where `wandb login` leaves a key for, unless told otherwise


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

    settings = wandb.setup(wandb.Settings(silent=True)).settings
    known, host = settings.api_key, urlsplit(settings.base_url).netloc
    wandb.teardown()  # a run starts it again, and in its own process
    if not (known or _has_login(host) or _has_login(_HOST)):
        raise UserError(
            f"{what} needs a W&B key and finds none; set WANDB_API_KEY, log in once with `wandb login`, or "
            f"{instead}"
        )


def _has_login(host: str) -> bool:
    """Whether ``wandb login`` has left a key for a host."""
    for place in (os.environ.get("NETRC"), "~/.netrc", "~/_netrc"):
        with contextlib.suppress(OSError, netrc.NetrcParseError):
            if place and netrc.netrc(Path(place).expanduser()).authenticators(host):
                return True
    return False
