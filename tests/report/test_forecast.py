import json

import pytest

from rudel.errors import RunError
from rudel.report.page import write_report


def entry(strategy, hosts, seconds):
    shares = {"computing": 0.9, "exchanging": 0.06, "waiting": 0.04}
    return {"strategy": strategy, "hosts": hosts, "seconds": seconds, "sent": 2e6, **shares}


def plan(**changes):
    chosen = entry("diloco", ["a", "b"], 4.56)
    document = {"forecast": chosen, "forecasts": [entry("single", ["a"], 9.0), chosen], "why": "2 <hosts> are faster."}
    return json.dumps({**document, **changes})


def test_what_was_forecast_stands_beside_what_happened(whole):
    assert "forecast" not in whole.report().sections
    (whole.path / "plan.json").write_text(plan())
    page = whole.report()
    words = page.words()
    assert "2 <hosts> are faster." in words
    assert "diloco on 2 hosts: 4.56 s were forecast, and it took 5.70 s, 25 % longer." in words
    assert "what happened15.70 s" in page.words("tfoot")
    rows = page.table("What was forecast of every strategy")
    assert [row[:4] for row in rows] == [["single", "", "1", "9.00\u202fs"], ["diloco", "chosen", "2", "4.56\u202fs"]]


@pytest.mark.parametrize("text", ["{", "[]", plan(forecast={}), plan(forecasts=[entry("mesh", ["a"], None)])])
def test_a_damaged_forecast_is_named(whole, text):
    (whole.path / "plan.json").write_text(text)
    with pytest.raises(RunError, match="cannot be read as a forecast"):
        write_report(whole.path)
