# For type checkers and editors: what `__init__.py` imports when it is used.

from pfl_benchmark.interface import compare_records as compare_records
from pfl_benchmark.interface import federated as federated
from pfl_benchmark.interface import grid as grid
from pfl_benchmark.interface import load_model as load_model
from pfl_benchmark.interface import load_predictions as load_predictions
from pfl_benchmark.interface import load_records as load_records
from pfl_benchmark.interface import plot_curves as plot_curves
from pfl_benchmark.interface import run as run

__version__: str
