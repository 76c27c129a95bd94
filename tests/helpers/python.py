"""What tests of the Python interface share: a run of a moment, and a class as of a notebook."""

import linecache

from pfl_benchmark.engine.algorithm import Algorithm

TINY = {
    "dataset": "digits",
    "clients": 4,
    "samples_per_client": 20,
    "test_samples_per_client": 10,
    "rounds": 3,
    "local_epochs": 1,
    "eval_every": 1,
    "device": "cpu",
    "executor": "loop",
    "progress": False,
}


def cell(name, body, number, attributes="", **scope):
    """A class as a notebook would define it in its cell `number`; `scope` has what other cells define."""
    source = (
        f"class {name}({scope.pop('base', 'Algorithm')}):\n"
        "    name, title, reference = 'in-a-cell', 'In a cell', 'a notebook'\n"
        f"    {attributes}\n"
        f"    def shared_layers(self):\n        return {body}\n"
    )
    file = f"<cell {number}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    scope = {"Algorithm": Algorithm, "__name__": "notebook", **scope}
    exec(compile(source, file, "exec"), scope)
    return scope[name]
