#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: tool_test.py UCCLEP-TOPO SOURCE-TREE

Runs ucclep-topo as people do: on this machine, on the saved ones, and wrongly. The output in docs/topology.md and the
pictures in docs/topology are what it prints and draws today.
"""
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

TOOL, SOURCES = sys.argv[1:]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("UCCLEP_")}


def run(*arguments, expected=0, **environment):
    done = subprocess.run([TOOL, *arguments], capture_output=True, text=True, timeout=60, check=False, env={**CLEAN, **environment})
    assert done.returncode == expected, f"{arguments}: {done.returncode}, expected {expected}: {done.stderr}"
    assert (done.stderr == "") == (expected == 0), f"{arguments}: {done.stderr}"
    return done.stdout if expected == 0 else done.stderr


def saved(name):
    return os.path.join(SOURCES, "test", "data", "topology", name + ".xml")


def plan(*arguments, **environment):
    return json.loads(run("--json", *arguments, **environment))


def contents(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def check_machines(folder):
    for name, ranks, nics in (("h100-cx7", 8, 1), ("p5en", 8, 2), ("p5", 8, 4), ("mi300x-thor2", 8, 1), ("pcie-only", 4, 1), ("laptop", 1, 0)):
        picture = os.path.join(folder, name + ".svg")
        json_plan = plan("--file", saved(name), "--svg", picture)
        assert [len(rank["nics"]) for rank in json_plan["ranks"]] == [nics] * ranks, name
        assert ElementTree.parse(picture).getroot().tag == "{http://www.w3.org/2000/svg}svg", name
        assert contents(picture) == contents(SOURCES, "docs", "topology", name + ".svg"), f"docs/topology/{name}.svg is an old one"
        text = run("--file", saved(name))
        assert text.count("\n") > ranks and f"plan: {ranks} rank" in text, name
        assert text == run(UCCLEP_TOPO_FILE=saved(name)), name


def check_readme():
    assert run("--file", saved("pcie-only")) in contents(SOURCES, "docs", "topology.md"), "docs/topology.md shows another output"


def check_options():
    two = plan("--file", saved("p5en"), "--copies", "2", "--ranks", "4", "--proxies", "1")
    assert two["nodes"] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert all(len(rank["proxies"]) == 1 for rank in two["ranks"])
    mixed = plan("--file", saved("p5"), "--file", saved("laptop"))
    assert [machine["name"] for machine in mixed["machines"]] == ["p5.48xlarge", "laptop"]
    for chosen in (plan("--file", saved("h100-cx7"), "--nics", "mlx5_4,mlx5_0"), plan("--file", saved("h100-cx7"), UCCLEP_NICS="mlx5_4,mlx5_0")):
        assert chosen["machines"][0]["rails"] == ["mlx5_4", "mlx5_0"]
    for virtual in (plan("--file", saved("p5"), "--virtual-nodes", "3,5"), plan("--file", saved("p5"), UCCLEP_NODES="3,5")):
        assert [len(node) for node in virtual["nodes"]] == [3, 5]
    assert len(plan("--file", saved("p5"), "--ranks-per-domain", "2")["domains"]) == 4


def check_errors(folder):
    message = run("--file", saved("pcie-only"), "--nics", "mlx5_7", expected=1)
    assert "the NIC mlx5_7 does not exist on 4xl40s, which has mlx5_0, mlx5_1" in message, message
    assert "cannot read" in run("--file", os.path.join(folder, "none.xml"), expected=1)
    assert "cannot be written" in run("--svg", os.path.join(folder, "none", "x.svg"), "--file", saved("laptop"), expected=1)
    assert "add up to 2 ranks" in run("--file", saved("p5"), UCCLEP_NODES="1,1", expected=1)
    assert "UCCLEP_NODES" in run("--file", saved("p5"), UCCLEP_NODES="one", expected=1)
    for wrong in (["--ranks", "-1"], ["--copies", "0"], ["--rank"], ["extra"], ["--virtual-nodes", "3,zero"]):
        assert "--help" in run(*wrong, expected=2), wrong


def main():
    assert "--virtual-nodes" in run("--help")
    run("--version")
    here = plan()
    assert len(here["machines"]) == 1 and here["machines"][0]["numa_nodes"], here
    with tempfile.TemporaryDirectory() as folder:
        check_machines(folder)
        check_readme()
        check_options()
        check_errors(folder)


main()
