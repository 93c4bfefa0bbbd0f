from bench.measure import Measurement


def test_a_figure_with_a_floor_is_judged_by_its_ratio() -> None:
    figure = Measurement("start", ours=30, unit="ms", goal=2, floor=20)
    assert figure.ratio == 1.5
    assert figure.reached
    assert not Measurement("start", ours=50, unit="ms", goal=2, floor=20).reached


def test_a_figure_without_a_floor_is_judged_by_itself() -> None:
    assert Measurement("slowest append", ours=80, unit="ms", goal=100).reached
    assert not Measurement("slowest append", ours=120, unit="ms", goal=100).reached


def test_a_goal_can_be_a_minimum() -> None:
    assert Measurement("appends", ours=600, unit="/s", goal=0.5, floor=1000, at_least=True).reached
    assert not Measurement("appends", ours=400, unit="/s", goal=0.5, floor=1000, at_least=True).reached
