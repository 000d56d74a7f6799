"""What one attempt may put into the store, and that a check-in is merged and never refused."""

import pytest

from allswell.domain.agents.quota import OVERHEAD, CheckinMerge, Quota, QuotaUse, check_in, question, request
from allswell.errors import Refused

LITTLE = Quota(requests=2, questions=1, bytes=10_000)


def test_requests_and_questions_are_counted_and_then_refused() -> None:
    spent = question(LITTLE, request(LITTLE, request(LITTLE, QuotaUse(), 10), 10), 10)
    assert spent == QuotaUse(2, 1, 3 * (10 + OVERHEAD))
    with pytest.raises(Refused, match="used up its 2 requests; the setting"):
        request(LITTLE, spent, 10)
    with pytest.raises(Refused, match="used up its 1 questions"):
        question(LITTLE, spent, 10)
    for more in (request, question):
        with pytest.raises(Refused, match="used up its 10,000 bytes"):
            more(LITTLE, QuotaUse(), 10_000)


def test_check_ins_beyond_the_quota_are_told_now_and_then_and_seldom_with_their_note() -> None:
    spent = QuotaUse()
    for _ in range(10):
        telling, spent = check_in(LITTLE, spent, 800, 0, 0)
        assert telling is CheckinMerge.WHOLE
    assert spent.bytes == 10_000
    assert check_in(LITTLE, spent, 0, 0, 0) == (CheckinMerge.MERGED, spent)
    assert check_in(LITTLE, spent, 0, 999, 59_999) == (CheckinMerge.MERGED, spent)
    assert check_in(LITTLE, spent, 0, 1_000, 59_999) == (CheckinMerge.BARE, spent)
    assert check_in(LITTLE, spent, 0, 1_000, 60_000) == (CheckinMerge.WHOLE, spent)
