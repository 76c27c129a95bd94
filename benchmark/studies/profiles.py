"""The scales at which studies can be made."""

from __future__ import annotations

from pfl_benchmark.studies.grid import Profile

PROFILES = {
    profile.name: profile
    for profile in (
        Profile(
            "quick", seeds=(0,), warning="A check of the machinery on small data, not the paper's result."
        ),
        Profile("lite", seeds=(0, 1, 2), warning="Reduced scale, not the paper's setting."),
        Profile("paper", seeds=(0, 1, 2)),
    )
}
