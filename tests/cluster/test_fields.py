"""The fields that say on which cluster, and how its values are echoed."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import ConfigDict, Field
from pydantic.fields import FieldInfo

from paracosm.cluster.cluster import hierarchical, star, switch
from paracosm.cluster.description import describe_cluster, describe_link, link_in_words
from paracosm.cluster.fields import LINK_FIELDS, ClusterFields, WorkerCount, WorkerCounts
from paracosm.cluster.link import Link, Packets
from paracosm.errors import InputError
from paracosm.validation import validated


class Config(ClusterFields):
    model_config = ConfigDict(extra="forbid")
    SYNONYMS: ClassVar[dict[str, str]] = {"processors": "workers"}
    workers: WorkerCount = 4
    compared: WorkerCounts | None = Field(None)


def config(**given: Any) -> Config:
    return validated(Config, given, "test")


def test_the_defaults_are_a_real_network_s() -> None:
    assert config().link == Link(duplex="full", pipelined=True, sharing="fair")
    assert config().cluster_of(3, 1) == star(3, 1, Link())
    assert config().cluster_of(3, 0) == switch(3, 0, Link())


def test_flags_describe_every_link() -> None:
    given = config(
        latency="1ms",
        bandwidth="10Gbit/s",
        overhead="20us",
        duplex="half",
        pipelined=False,
        sharing="serial",
    )
    assert given.link == Link(1.25e9, 1e-3, 2e-5, "half", False, "serial")
    assert config(**given.model_dump(include=LINK_FIELDS)) == given, "written as it is read"


def test_packets_are_read_and_written_with_their_quantum() -> None:
    given = config(bandwidth="1Gbit/s", sharing="packets( 16 KiB )")
    assert given.link == Link(1.25e8, sharing=Packets(16384.0))
    assert given.model_dump()["sharing"] == "packets(16KiB)"
    assert describe_link(given.link)["sharing"] == "packets(16KiB)"
    assert config(**given.model_dump(include=LINK_FIELDS)) == given


def test_fields_of_links_are_all_that_a_link_has() -> None:
    assert set(Link.__dataclass_fields__) == LINK_FIELDS
    assert all(isinstance(Config.model_fields[name], FieldInfo) for name in LINK_FIELDS)


def test_a_file_takes_the_place_of_flags(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("{topology: star, workers: 2, servers: 1}")
    assert config(cluster=path).cluster_of(9, 9) == star(2, 1, Link())
    assert config(cluster=str(path)).cluster_in_file == star(2, 1, Link())
    mapping = {"topology": "switch", "workers": 3}
    assert config(cluster=mapping).cluster_of(9, 9) == switch(3, 0, Link())


def test_changes_of_other_things_leave_the_cluster_as_it_is() -> None:
    given = config(what_if=["worker 1: compute 2x slower", "all_reduce: +2 ms"])
    cluster = given.changed(given.cluster_of(2, 0))
    assert [node.speed for node in cluster.nodes] == [1, 0.5]
    texts = given.model_dump()["what_if"]
    assert texts == ["worker 1: compute 2x slower", "all_reduce: +2 ms"]
    assert config(what_if=texts).what_if == given.what_if


@pytest.mark.parametrize(
    ("given", "workers"),
    [({"workers": "8"}, 8), ({"workers": 8}, 8), ({"workers": [8]}, 8), ({"processors": 8}, 8)],
)
def test_numbers_of_workers(given: dict[str, Any], workers: int) -> None:
    assert config(**given).workers == workers


def test_several_numbers_of_workers() -> None:
    assert config(compared="1,2,4..16").compared == (1, 2, 4, 8, 16)
    assert config(compared=3).compared == (3,)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"workers": "1,2"}, "one number here, not 2: a list is a sweep of runs"),
        ({"workers": []}, "missing number of workers"),
        ({"workers": 0}, "greater than or equal to 1"),
        ({"workers": 10**9}, "less than or equal to 1000000"),
        ({"workers": "1e9"}, 'cannot read "1e9"'),
        ({"compared": []}, "missing number of workers"),
        ({"workers": 2, "processors": 3}, "processors and workers are the same"),
        ({"bandwidth": "25"}, '"25" has no unit: write a bandwidth as 25Gbit/s'),
        ({"bandwidth": 0}, "greater than 0"),
        ({"latency": "5"}, '"5" has no unit'),
        ({"latency": "inf"}, "finite"),
        ({"latency": "-1ms"}, "0 or more"),
        ({"duplex": "quarter"}, "'full' or 'half'"),
        ({"sharing": "fifo"}, "fair, serial or packets(16KiB)"),
        ({"what_if": "faster"}, "write SUBJECT: CHANGE"),
        ({"sharng": "fair"}, 'did you mean "sharing"?'),
        ({"cluster": 7}, "cluster: input should be a path"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        config(**given)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_values_are_echoed_with_their_units() -> None:
    said = describe_cluster(star(2, 1, Link(1.25e9, 1e-3, 2e-5, sharing="serial")))
    assert said == {
        "topology": "star",
        "workers": 2,
        "servers": 1,
        "placement": "own",
        "links": {
            "bandwidth": "10 Gbit/s",
            "latency": "1 ms",
            "overhead": "20 us",
            "duplex": "full",
            "pipelined": "yes",
            "sharing": "serial",
        },
    }


def test_what_is_not_the_same_everywhere_is_echoed_too() -> None:
    cluster = hierarchical(4, 2, Link(), Link(latency=1.0), speeds=[1, 1, 0.5, 2])
    said = describe_cluster(cluster)
    assert (said["group_size"], said["cards"]) == (2, 2)
    assert said["links between groups"]["latency"] == "1 s"
    assert said["speeds"] == "0.5 to 2"
    assert "placement" not in said


def test_a_copy_derives_anew_what_its_fields_say(tmp_path: Path) -> None:
    class Counted(Config):
        @cached_property
        def doubled(self) -> int:
            return 2 * self.workers

    file = tmp_path / "cluster.yaml"
    file.write_text("{topology: switch, workers: 3}")
    first = validated(Counted, {"workers": 3, "cluster": file}, "test")
    assert first.doubled == 6
    assert first.cluster_in_file is not None
    copy = first.model_copy(update={"workers": 5})
    assert copy.doubled == 10
    assert copy.cluster_in_file is first.cluster_in_file
    assert first.model_copy(update={"cluster": None}).cluster_in_file is None


def test_a_link_in_one_line() -> None:
    link = Link(1.25e9, 1e-3, 2e-5, "half", False, "serial")
    assert link_in_words(describe_link(link)) == (
        "10 Gbit/s, latency 1 ms, overhead 20 us a message, half duplex, latency holds the ports, "
        "serial sharing"
    )
    assert link_in_words(describe_link(Link())) == (
        "unlimited bandwidth, latency 0 s, overhead 0 s a message, full duplex, pipelined, "
        "fair sharing"
    )
