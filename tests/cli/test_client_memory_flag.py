"""``--client-memory``: how bytes are written, and what is refused."""

import pytest

from pfl_benchmark.config.flags import memory
from pfl_benchmark.errors import UserError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4GiB", 2**32), ("4 gib", 2**32), ("4g", 2**32), ("1.5GiB", 3 * 2**29), ("500MB", 500_000_000),
        ("64KiB", 2**16), ("1TB", 10**12), ("0", 0), ("123", 123), ("123B", 123),
    ],
)  # fmt: skip
def test_bytes_as_people_write_them(text, expected):
    assert memory("--client-memory", text) == expected


@pytest.mark.parametrize("text", ["", "much", "-1", "4GiBs", "4iB", "1e9", "nan", "4,5GB", "٣GB", "9" * 30])
@pytest.mark.parametrize("name", ["--client-memory", "--other"])
def test_what_is_no_size_is_one_line(text, name):
    with pytest.raises(UserError, match=f"^{name} is .*expected bytes, such as 4GiB") as refused:
        memory(name, text)
    assert "\n" not in str(refused.value)
