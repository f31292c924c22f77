"""Clusters, background traffic and speeds as the simulation sees them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from profiled_jobs import BANDWIDTH, job_of, serial_profile

from paracosm.cluster.description import cluster_from_mapping
from paracosm.errors import InputError
from paracosm.prediction.parameter_servers.config import (
    Background,
    background_changes,
    parse_background,
    ports_of,
)
from paracosm.prediction.parameter_servers.target import target_job

LINK = {"bandwidth": "1kB/s"}


def cluster(**said: Any) -> Any:
    links = {"default": LINK, **said.pop("links", {})}
    return cluster_from_mapping(
        {"topology": "star", "workers": 3, "servers": 2, "links": links, **said}
    )


def test_ports_are_as_wide_as_links() -> None:
    slower = [{"between": ["worker1", f"server{i}"], "bandwidth": "500B/s"} for i in range(2)]
    ports = ports_of(cluster(links={"overrides": slower}, workers=[{"count": 2}, {"speed": 0.5}]))
    assert ports.server.tolist() == [BANDWIDTH, BANDWIDTH]
    assert ports.worker.tolist() == [BANDWIDTH, 500.0, BANDWIDTH]
    assert ports.speed.tolist() == [1.0, 1.0, 0.5]
    assert ports.first(2).worker.tolist() == [BANDWIDTH, 500.0]
    assert ports.only(1).worker.tolist() == [500.0]
    assert ports.only(1).server.tolist() == [BANDWIDTH, BANDWIDTH]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"topology": "ring", "servers": 0}, "on a switch or a star, not on a ring"),
        ({"topology": "switch", "servers": 0}, "it has no server"),
        ({"servers": 2, "placement": "workers"}, "nodes of workers"),
        ({"links": {"default": {}}}, "its default link needs a finite bandwidth"),
        (
            {
                "links": {
                    "overrides": [{"between": ["worker2", "server0"], "bandwidth": "inf"}],
                }
            },
            "the link between worker2 and server0 needs a finite bandwidth",
        ),
    ],
)
def test_what_no_port_can_say_is_refused(said: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"^cluster: .*{message}"):
        ports_of(cluster(**said))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2", Background(2)),
        ("1 flow", Background(1)),
        (" 2 flows, 3s on, 10 s off ", Background(2, 3.0, 10.0)),
    ],
)
def test_background_traffic_is_read(text: str, expected: Background) -> None:
    assert parse_background(text) == expected


@pytest.mark.parametrize(
    "text", ["much", "-1", "2 flows, 3s on", "2 flows, 0s on, 1s off", "1.5", "9999999999"]
)
def test_other_words_for_background_traffic_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"background|the time on is above 0"):
        parse_background(text)


def test_background_traffic_comes_and_goes() -> None:
    times, flows = background_changes(Background(2, 3.0, 10.0), 30.0)
    assert times.tolist() == [0, 3, 13, 16, 26, 29]
    assert flows.tolist() == [2, 0, 2, 0, 2, 0]
    with pytest.raises(InputError, match="changes more than 1,000,000 times"):
        background_changes(Background(1, 1e-9, 1e-9), 30.0)


def test_bounds_of_steps_hold() -> None:
    job = job_of(serial_profile(), workers=4)
    ports = job.settings.ports
    # All share one link in both directions; each computes for 2 s, and a core of its own for 1.
    assert job.longest_steps(ports) == pytest.approx([4 * 2 + 2 + 1] * 4)
    # A slow one keeps the others from nothing; one core for all does.
    slow = replace(ports, speed=np.array([1.0, 1.0, 1.0, 0.01]))
    assert job.longest_steps(slow) == pytest.approx([11, 11, 11, 8 + 200 + 1])
    one_core = job_of(serial_profile(), workers=4, cores=1)
    assert one_core.longest_steps(ports) == pytest.approx([8 + 2 + 4] * 4)
    # Pull and push are one after the other: two delays.
    late = replace(ports.routes, latency=np.full_like(ports.routes.latency, 0.5))
    assert job.longest_steps(replace(ports, routes=late)) == pytest.approx([12] * 4)
    # A step takes 2 s of computing at least: 35 of them in 70 s.
    assert job.most_steps(ports, 70.0) == 36


def test_servers_of_other_speeds_update_faster() -> None:
    said = {"topology": "star", "workers": 1, "servers": {"speed": 4}, "links": {"default": LINK}}
    ports = ports_of(cluster_from_mapping(said))
    settings = replace(job_of(serial_profile()).settings, ports=ports)
    assert target_job(serial_profile(), settings, 0).workload.seconds[0, 3] == 0.25


def test_the_first_workers_draw_the_same_steps_whatever_their_number() -> None:
    profile = serial_profile()
    several = job_of(
        serial_profile(
            begin=np.repeat(profile.begin, 9, axis=0),
            end=np.repeat(profile.end, 9, axis=0),
            step_begin=5.0 * np.arange(9),
            step_end=5.0 * np.arange(9) + 5.0,
        )
    )
    few, many = several.drawn(2, 100, 3), several.drawn(4, 60, 3)
    assert (few[:, :60] == many[:2]).all()
    assert (many[0] != many[1]).any()
    assert set(np.unique(few)) == set(range(9))


def test_uneven_shares_of_the_first_workers_do_not_depend_on_the_others() -> None:
    job = job_of(serial_profile(), share_sigma=0.5)
    ports = job.settings.ports
    few = job.with_shares(job.system(ports.first(2)), 100, [1, 2]).weight
    many = job.with_shares(job.system(ports), 60, [1, 2]).weight
    assert few is not None
    assert many is not None
    assert (few[:, :60] == many[:2]).all()
    assert np.log(few).std() == pytest.approx(0.5, rel=0.2)


def test_background_traffic_lasts_as_long_as_the_simulation() -> None:
    job = job_of(serial_profile(), workers=1, background=Background(1, 3.0, 10.0))
    ports = job.settings.ports
    assert job.system(ports, until=26.0).background_times.tolist() == [0, 3, 13, 16]
    # 250 steps of 4 s of transfers and 3 of computing at most.
    assert job.system(ports).background_times[-1] == pytest.approx(250 * 7, abs=13)


def test_a_profile_that_takes_no_time_is_refused() -> None:
    nothing = np.zeros((1, 4))
    profile = serial_profile(
        size=np.zeros(4, np.int64), begin=nothing, end=nothing, step_end=np.zeros(1)
    )
    with pytest.raises(InputError, match="its steps take no time"):
        job_of(profile)
