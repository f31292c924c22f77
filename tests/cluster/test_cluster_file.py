from pathlib import Path

import pytest
import yaml

from paracosm.cluster.cluster import Cluster, Node
from paracosm.cluster.description import cluster_from_mapping, load_cluster
from paracosm.cluster.link import Link
from paracosm.errors import InputError

FILE = """
topology: star
workers:
  - count: 12
    device: A100
    memory: 80GiB
  - count: 4
    speed: 0.5
servers: 2
links:
  default:
    bandwidth: 10 Gbit/s
    latency: 1 ms
    overhead: 20us
    duplex: half
    pipelined: false
    sharing: serial
  overrides:
    - between: [worker3, server0]
      bandwidth: 1Gbit/s
"""
SERIAL = {"duplex": "half", "pipelined": False, "sharing": "serial"}


def test_file(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text(FILE)
    cluster = load_cluster(path)
    assert len(cluster.workers) == 16
    assert cluster.servers == ("server0", "server1")
    assert cluster.node("worker0") == Node("worker0", 1.0, 80 * 2.0**30, "A100")
    assert cluster.node("worker12") == Node("worker12", 0.5)
    assert cluster.link("worker0", "server1") == Link(1.25e9, 1e-3, 2e-5, **SERIAL)
    assert cluster.link("server0", "worker3") == Link(1.25e8, 1e-3, 2e-5, **SERIAL)


def test_example_in_the_documentation_is_a_cluster_file():
    page = Path(__file__).parents[2] / "docs" / "cluster-file.md"
    examples = page.read_text(encoding="utf-8").split("```yaml\n")[1:]
    assert examples
    for example in examples:
        cluster = cluster_from_mapping(yaml.safe_load(example.split("```")[0]))
        assert isinstance(cluster, Cluster)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"links": {"default": {"bandwith": 3}}}, ["links.default.bandwith", "bandwidth"]),
        ({"toplogy": "star"}, ['"toplogy"', "topology"]),
        ({"topology": "torus"}, ["topology", "star", "hierarchical", "torus"]),
        ({"links": {"default": {"bandwidth": 0}}}, ["links.default.bandwidth", "greater than 0"]),
        ({"links": {"default": {"bandwidth": "10 GBs"}}}, ["links.default.bandwidth", '"GB/s"']),
        ({"links": {"default": {"latency": "-1ms"}}}, ["links.default.latency", "0 or more"]),
        ({"links": {"default": {"latency": "inf"}}}, ["links.default.latency", "finite"]),
        ({"links": {"default": {"duplex": "both"}}}, ["links.default.duplex", "half"]),
        (
            {"links": {"default": {"sharing": "both"}}},
            ["links.default.sharing", "fair, serial or packets(16KiB)"],
        ),
        (
            {"links": {"default": {"sharing": "packets(1500)"}}},
            ["links.default.sharing", "a quantum has a unit"],
        ),
        ({"links": {"default": {"sharing": "packets(0B)"}}}, ["1 byte or more"]),
        ({"links": {"default": {"pipelined": 3}}}, ["links.default.pipelined"]),
        ({"links": {"default": {"bandwidth": "25"}}}, ["links.default.bandwidth", "no unit"]),
        (
            {"links": {"overrides": [{"between": ["worker0", "server0"], "sharing": "serial"}]}},
            ["sharing: one rule for all links"],
        ),
        (
            {"links": {"overrides": [{"between": ["worker0", "server0"]}]}},
            ["links.overrides.0 has no effect"],
        ),
        ({"workers": 10**9}, ["workers.0.count", "less than or equal to 1000000"]),
        ({"workers": [{"count": 10**6}, {"count": 1}]}, ["1,000,001 nodes", "1,000,000"]),
        ({"servers": 10**30}, ["servers.0.count", "less than or equal to 1000000"]),
        ({"workers": 0}, ["at least 1 worker"]),
        ({"workers": []}, ["at least 1 worker"]),
        ({"workers": {"count": 0}}, ["workers", "count", "1"]),
        ({"workers": {"count": 2, "speed": 0}}, ["speed", "greater than 0"]),
        ({"workers": "4"}, ["workers", "'4'"]),
        ({"servers": 0}, ["at least 1 server"]),
        ({"topology": "ring"}, ["ring", "workers only"]),
        ({"group_size": 2}, ["group_size", "hierarchical", "star"]),
        ({"links": {"between_groups": {"latency": 1}}}, ["links.between_groups", "hierarchical"]),
        ({"topology": "hierarchical"}, ["needs group_size and links.between_groups"]),
        ({"servers": {"speed": 2}, "placement": "workers"}, ["servers", "only their number"]),
        ({"topology": "switch", "servers": 0, "placement": "workers"}, ["no servers to place"]),
        (
            {"links": {"overrides": [{"between": ["worker0", "worker9"], "latency": 1}]}},
            ['"worker9"', "did you mean"],
        ),
        (
            {"links": {"overrides": [{"between": ["worker0", "worker0"], "latency": 1}]}},
            ["live on one node"],
        ),
        (
            {
                "links": {
                    "overrides": [
                        {"between": ["worker0", "server0"], "latency": 1},
                        {"between": ["server0", "worker0"], "latency": 2},
                    ]
                }
            },
            ["overridden twice"],
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line_with_its_key(change, words):
    with pytest.raises(InputError) as caught:
        cluster_from_mapping({"topology": "star", "workers": 4, "servers": 1} | change)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("workers: [", "cannot read the cluster file"),
        ("- 3", "keys and values"),
        ("", "keys and values"),
        ("workers: 2\nservers: 1\nworkers: 3", r'the key "workers" is given twice \(line 3\)'),
        ("workers: " + "[" * 2000 + "]" * 2000, "nested deeper than 64 levels"),
        ("a: &a [*a]", "values|recursive|undefined alias"),
        ("\x00", "cannot read the cluster file"),
    ],
)
def test_broken_files(tmp_path, content, words):
    path = tmp_path / "cluster.yaml"
    path.write_text(content)
    with pytest.raises(InputError, match=words) as caught:
        load_cluster(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_file(tmp_path):
    with pytest.raises(InputError, match="no cluster file at"):
        load_cluster(tmp_path / "nowhere.yaml")
