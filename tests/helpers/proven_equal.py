"""Writes the list of code digests that were proven to stand for the same floats.

A record holds a digest of the code that computed it (`code_of`). After a change of that code which leaves all
floats as they were (`equal_runs` compares), two commands keep the records of the old code valid. In the
checkout of the new code:

    git worktree add /tmp/old COMMIT         # the last commit of the code that made the records
    python -m tests.helpers.proven_equal /tmp/old "compared: what, when, how many; all bit-equal"

For the configuration of every record in results/ the old checkout gives its digest (it needs no packages but
those of this interpreter) and this code its own; ``benchmark/records/proven_equal.json`` then says which new
one each old one stands for. Records that were outdated for the old code have another digest than it gives:
they stay outdated. Any later change of what computes gives another new digest, and ends the proof.

Entries of an earlier proof are carried on where their new digest is now an old one, and dropped elsewhere.
Digests that no record has are left out.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMES = "pfl_benchmark.resolve.code", "pfl_benchmark.config.run_config"  # where both commits have the two
PROGRAM = """
import json, sys
sys.path.insert(0, ".")
from {} import code_of
from {} import RunConfig
print(json.dumps([code_of(RunConfig.from_dict(config)) for config in json.load(sys.stdin)]))
"""


def configurations(results):
    """The configurations of all finished records below a folder, without their seeds."""
    found = {}
    for done in sorted(results.glob("*/*/done")):
        config = json.loads(done.with_name("config.json").read_text(encoding="utf-8"))["config"]
        found[json.dumps({**config, "seed": 0}, sort_keys=True)] = {**config, "seed": 0}
    return list(found.values())


def digests(checkout, configs):
    """What the code of a checkout calls itself, for each configuration."""
    command = [sys.executable, "-B", "-c", PROGRAM.format(*NAMES)]
    given = json.dumps(configs)
    done = subprocess.run(command, cwd=checkout, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def paired(old, new, known):
    """New digest by old one, with what an earlier proof still says; one old digest has one new one."""
    pairs = dict(zip(old, new, strict=True))
    for names, others in ((old, new), (new, old)):
        if len({*zip(names, others, strict=True)}) > len({*names}):
            raise SystemExit("a digest stands for two others: the two commits divide the code otherwise")
    return {**{first: pairs[second] for first, second in known.items() if second in pairs}, **pairs}


def used(results):
    """The digests that records below a folder, and verdicts about them, have."""
    files = [path for name in ("summary", "verified") for path in results.glob(f"*/*/{name}.json")]
    return {digest for path in files for digest in re.findall(r'"([0-9a-f]{64})"', path.read_text())}


def main(checkout, evidence):
    """Write the list, and say how long it is."""
    path = ROOT / "benchmark/records/proven_equal.json"
    known = json.loads(path.read_text(encoding="utf-8"))
    configs = configurations(ROOT / "results")
    equal = paired(digests(Path(checkout), configs), digests(ROOT, configs), known["equal"])
    had = used(ROOT / "results")
    equal = {old: new for old, new in equal.items() if old in had}
    told = {"evidence": [*known["evidence"], evidence], "equal": dict(sorted(equal.items()))}
    path.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(f"{len(configs)} configurations, {len(equal)} digests in {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
