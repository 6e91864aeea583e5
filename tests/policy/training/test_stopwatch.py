from __future__ import annotations

from contextlib import suppress

from policy.training.stopwatch import Stopwatch


def test_nested_parts_count_once_and_the_rest_is_overhead():
    now = 0.0

    def clock():
        return now

    watch = Stopwatch(clock)
    with watch.part("training"):
        now += 1
        with watch.part("overhead"):
            now += 2
            with watch.part("generation"):
                now += 4
            with watch.part("evaluation"):
                now += 8
        now += 16
    now += 32
    assert watch.lap() == {"generation": 4, "evaluation": 8, "training": 17, "overhead": 34, "step": 63}
    assert watch.lap() == {"generation": 0, "evaluation": 0, "training": 0, "overhead": 0, "step": 0}


def test_a_part_that_fails_is_counted_too():
    now = 0.0
    watch = Stopwatch(lambda: now)
    with suppress(ValueError), watch.part("generation"):
        now += 1
        raise ValueError
    assert watch.lap()["generation"] == 1
