# For type checkers and editors: what `benchmark/__init__.py` imports when it is used.

from benchmark.interface import compare_records as compare_records
from benchmark.interface import load_records as load_records
from benchmark.interface import run as run

__version__: str
