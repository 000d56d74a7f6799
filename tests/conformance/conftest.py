"""Failures of the shipped suite are explained as those of our own tests are."""

import pytest

pytest.register_assert_rewrite("tests.support.conformance")
