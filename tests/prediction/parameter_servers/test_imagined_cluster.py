"""Clusters, background traffic and speeds as the simulation sees them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from profiled_jobs import BANDWIDTH, job_of, serial_profile

from paracosm.cluster import cluster_from_mapping
from paracosm.errors import InputError
from paracosm.prediction.parameter_servers.background import (
    Background,
    background_changes,
    parse_background,
)
from paracosm.prediction.parameter_servers.cluster_ports import ports_of
from paracosm.prediction.parameter_servers.imagined import imagined_job

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
        ({"links": {"default": LINK | {"duplex": "half"}}}, "its default link is half-duplex"),
        ({"links": {"default": LINK | {"overhead": "1ms"}}}, "its default link has an overhead"),
        (
            {"links": {"overrides": [{"between": ["worker2", "server0"], "bandwidth": "1B/s"}]}},
            "the links of worker2 to the servers differ",
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


@pytest.mark.parametrize("text", ["much", "-1", "2 flows, 3s on", "2 flows, 0s on, 1s off", "1.5"])
def test_other_words_for_background_traffic_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="background"):
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
    # All share one link in both directions, and compute one after the other.
    assert job.longest_step(ports) == pytest.approx(4 * 2 + 4 * 3)
    # A step takes 2 s of computing at least: 35 of them in 70 s.
    assert job.most_steps(ports, 70.0) == 36


def test_servers_of_other_speeds_update_faster() -> None:
    said = {"topology": "star", "workers": 1, "servers": {"speed": 4}, "links": {"default": LINK}}
    ports = ports_of(cluster_from_mapping(said))
    settings = replace(job_of(serial_profile()).settings, ports=ports)
    assert imagined_job(serial_profile(), settings, 0).workload.seconds[0, 3] == 0.25


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
    few, many = several.drawn(2, 100, 3), several.drawn(4, 100, 3)
    assert (few == many[:2]).all()
    assert set(np.unique(few)) == set(range(9))
