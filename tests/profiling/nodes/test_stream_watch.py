"""Turns, sizes and windows of streams, from frames made by hand."""

from __future__ import annotations

from frames import asked, begun, data, frame, settings, trailers

from paracosm.profiling.nodes.proxy import RST_STREAM, STANDARD_WINDOW, StreamWatch


def test_a_stream_that_fills_its_window_lets_another_one_pass_and_then_ends() -> None:
    """Windows of 10 bytes: stream 1 has 25, sends 10; stream 3 sends its 4; 1 the other 15."""
    watch = StreamWatch()
    watch.from_client(begun(10) + asked(1, b"first") + asked(3, b"second"), 0.0)
    watch.from_server(settings() + data(1, bytes(6)) + data(1, bytes(4)), 1.0)
    watch.from_server(data(3, bytes(4)) + trailers(3), 2.0)
    watch.from_server(data(1, bytes(15)), 3.0)
    watch.from_server(trailers(1), 4.0)
    short, long = watch.ended
    assert (short.number, short.size, short.turns, short.stopped) == (3, 4, (4,), False)
    assert (long.number, long.size, long.turns, long.stopped) == (1, 25, (10, 15), True)
    assert (long.request, long.window) == (b"first", 10)
    assert (short.last, long.last) == (2.0, 3.0)  # the trailers are no data


def test_a_stream_that_is_interrupted_below_its_window_was_not_stopped_by_it() -> None:
    watch = StreamWatch()
    watch.from_client(begun(100) + asked(1) + asked(3), 0.0)
    sent = data(1, bytes(30)) + data(3, bytes(5), last=True) + data(1, bytes(30), last=True)
    watch.from_server(settings() + sent, 1.0)
    assert [(each.turns, each.stopped) for each in watch.ended] == [
        ((5,), False),
        ((30, 30), False),
    ]


def test_streams_one_after_the_other_have_one_turn_each() -> None:
    watch = StreamWatch()
    watch.from_client(begun() + asked(1) + asked(3), 0.0)
    watch.from_server(settings() + data(1, bytes(9), last=True) + data(3, bytes(8), last=True), 1.0)
    assert [each.turns for each in watch.ended] == [(9,), (8,)]
    assert {each.window for each in watch.ended} == {STANDARD_WINDOW}


def test_a_window_that_grows_counts_for_streams_asked_for_from_then_on() -> None:
    watch = StreamWatch()
    watch.from_client(begun(10) + asked(1), 0.0)
    watch.from_client(settings(40) + asked(3), 5.0)
    watch.from_server(settings() + data(1, b"a", last=True) + data(3, b"b", last=True), 6.0)
    assert watch.windows == [(0.0, 10), (5.0, 40)]
    assert [each.window for each in watch.ended] == [10, 40]


def test_streams_that_are_reset_and_those_of_nobody_are_left_out() -> None:
    watch = StreamWatch()
    watch.from_client(begun() + asked(1) + asked(3) + asked(5), 0.0)
    watch.from_server(settings() + data(1, b"a") + frame(RST_STREAM, bytes(4), stream=1), 1.0)
    watch.from_client(frame(RST_STREAM, bytes(4), stream=3), 1.0)
    watch.from_server(data(3, b"x", last=True) + data(7, b"x", last=True) + trailers(5), 2.0)
    assert watch.ended == []


def test_open_streams_that_never_end_take_bounded_memory() -> None:
    watch = StreamWatch()
    watch.from_client(begun(), 0.0)
    for number in range(1, 60_001, 2):
        watch.from_client(asked(number), 0.0)
    watch.from_server(settings() + data(1, b"old", last=True) + data(59_999, b"n", last=True), 1.0)
    assert [each.number for each in watch.ended] == [59_999]  # the oldest are forgotten
