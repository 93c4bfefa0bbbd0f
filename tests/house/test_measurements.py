from bench.measure import Measurement


def test_measurement_with_a_floor_is_compared_by_its_ratio() -> None:
    measurement = Measurement("start", ours=30, unit="ms", goal=2, floor=20)
    assert measurement.ratio == 1.5
    assert measurement.reached
    assert not Measurement("start", ours=50, unit="ms", goal=2, floor=20).reached


def test_measurement_without_a_floor_is_compared_by_its_value() -> None:
    assert Measurement("slowest append", ours=80, unit="ms", goal=100).reached
    assert not Measurement("slowest append", ours=120, unit="ms", goal=100).reached


def test_measurement_goal_can_be_a_minimum() -> None:
    assert Measurement("appends", ours=600, unit="/s", goal=0.5, floor=1000, at_least=True).reached
    assert not Measurement("appends", ours=400, unit="/s", goal=0.5, floor=1000, at_least=True).reached
