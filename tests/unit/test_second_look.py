"""Which tests may be looked at again."""

from __future__ import annotations

import pytest

from tests.second_look import refusal


@pytest.mark.parametrize(
    "failed",
    [
        [],
        ["tests/chaos/test_chaos.py::test_a_seed"],
        ["tests/unit/test_x.py"],
        ["tests/unit/test_x.py::test_a", "tests/chaos/test_network.py::test_b"],
        [f"tests/unit/test_x.py::test_{number}" for number in range(4)],
    ],
)
def test_no_second_look(failed: list[str]) -> None:
    assert refusal(failed)


def test_a_few_that_failed_get_one() -> None:
    assert refusal([f"tests/unit/test_x.py::test_{number}" for number in range(3)]) is None
