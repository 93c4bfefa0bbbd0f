from bench.measure import Figure


def test_a_figure_with_a_floor_is_judged_by_its_ratio() -> None:
    figure = Figure("start", ours=30, unit="ms", goal=2, floor=20)
    assert figure.ratio == 1.5
    assert figure.reached
    assert not Figure("start", ours=50, unit="ms", goal=2, floor=20).reached


def test_a_figure_without_a_floor_is_judged_by_itself() -> None:
    assert Figure("slowest append", ours=80, unit="ms", goal=100).reached
    assert not Figure("slowest append", ours=120, unit="ms", goal=100).reached


def test_a_goal_can_be_a_minimum() -> None:
    assert Figure("appends", ours=600, unit="/s", goal=0.5, floor=1000, at_least=True).reached
    assert not Figure("appends", ours=400, unit="/s", goal=0.5, floor=1000, at_least=True).reached
