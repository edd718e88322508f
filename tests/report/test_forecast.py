import json

import pytest

from rudel.errors import RunError
from rudel.report.report_page import write_report


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
    rows = page.table("Forecast of every strategy")
    assert [row[:4] for row in rows] == [["single", "", "1", "9.00\u202fs"], ["diloco", "chosen", "2", "4.56\u202fs"]]


def test_a_run_that_took_other_steps_is_compared_with_a_forecast_for_as_many(whole):
    (whole.path / "plan.json").write_text(plan(steps=8192, batch_size=32))
    whole.summary(samples=12288 * 32, hosts=["b", "a"])  # resumed with more steps
    words = "6.84 s were forecast for 12,288 steps (of 8,192 when it was chosen), and it took 5.70 s, 17 % less."
    assert words in whole.report().words()
    whole.summary(samples=8200 * 32, hosts=["a", "b"])  # the last rounds were a little longer
    assert "4.56 s were forecast, and it took 5.70 s, 25 % longer." in whole.report().words()
    whole.summary(samples=8192 * 32, hosts=["a"])
    assert "4.56 s were forecast, and it took 5.70 s on other hosts." in whole.report().words()


def test_what_happened_tells_steps_from_merging(whole):
    (whole.path / "plan.json").write_text(plan())
    host = {"steps": 5, "seconds": 3.0, "waited": 1.0, "merged_at": 1, "memory": 1, "cpu": 1, "sent": 1, "received": 1}
    a_round = {"round": 1, "step": 10, "seconds": 4.0, "sent": 2, "received": 2}
    whole.rounds([a_round | {"hosts": {"a": host | {"computed": 1.5}, "b": host | {"computed": 1.5}}}])
    assert "38 %13 %50 %" in whole.report().words("tfoot")  # of 4 s each: 1.5 in steps, 0.5 merging, 2 waiting
    whole.rounds([a_round | {"hosts": {"a": host, "b": host}}])  # as logs were written before
    assert "50 %50 %" in whole.report().words("tfoot")


def test_what_happened_counts_the_hosts_of_before_a_resumption(whole):
    (whole.path / "plan.json").write_text(plan())
    host = {"steps": 5, "seconds": 3.0, "waited": 1.0, "merged_at": 1, "memory": 1, "cpu": 1, "sent": 1, "received": 1}
    hosts = [{"a": host, "b": host}, {"a": host}]
    whole.rounds(
        [{"round": n, "step": 10 * n, "seconds": 4.0, "sent": 2, "received": 2, "hosts": hosts[n - 1]} for n in (1, 2)]
    )
    whole.summary(hosts=["a"])
    assert "what happened2" in whole.report().words("tfoot")


@pytest.mark.parametrize("text", ["{", "[]", plan(forecast={}), plan(forecasts=[entry("mesh", ["a"], None)])])
def test_a_damaged_forecast_is_named(whole, text):
    (whole.path / "plan.json").write_text(text)
    with pytest.raises(RunError, match="cannot be read as a forecast"):
        write_report(whole.path)
